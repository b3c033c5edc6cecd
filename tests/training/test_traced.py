"""A model under training translates again and again, each time with its weights of then."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import torch

from export.verification.reference import greedy_tokens
from models.package.manifest import GenerationDefaults
from tests.models.test_transformer import config, random_model
from training.decoding import TargetLimits, TracedModel

SOURCE, TOKENS = [5, 9, 3, 12, 0], 12
POSITIONS = 128
"""So many are computed from a constant that is large enough for the file of weights, which is a new one each time."""


def spelled(token_ids: Iterable[int]) -> str:
    return " ".join(map(str, token_ids))


def test_new_weights_go_into_the_same_graphs() -> None:
    torch.set_num_threads(1)
    model = random_model(config(max_positions=POSITIONS, positions="sinusoidal", encoder_layers=1, decoder_layers=1))
    traced = TracedModel(model, cast(Any, SimpleNamespace(decode=spelled)))
    limits = TargetLimits(growth=0.0, allowance=TOKENS)
    found = list[str]()
    for _ in range(3):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "feed_forward" in name:
                    parameter.add_(torch.randn_like(parameter), alpha=0.3)
        with traced.open(model, limits) as translating:
            [translated] = translating.translate([SOURCE])
        target = [int(token) for token in translated.text.split()]
        assert tuple(target) == greedy_tokens(model, SOURCE, target, GenerationDefaults(max_new_tokens=POSITIONS))
        found.append(translated.text)
    assert len(set(found)) > 1
