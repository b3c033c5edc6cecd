"""A model under training translates again and again, each time with its weights of then."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from export.verification.reference import greedy_tokens
from models.architectures.architecture import Architecture
from models.package.manifest import GenerationDefaults
from tests.models.recurrent import shapes
from tests.models.test_transformer import T5, config, random_model
from tests.models.test_universal import HALTING
from training.decoding import TargetLimits, TracedModel

SOURCE, TOKENS = [5, 9, 3, 12, 0], 12
POSITIONS = 128
"""So many are computed from a constant that is large enough for the file of weights, which is a new one each time."""
LAYERS = {"encoder_layers": 1, "decoder_layers": 1}
MODELS: dict[str, Callable[[], Architecture]] = {
    "Transformer": lambda: random_model(config(max_positions=POSITIONS, positions="sinusoidal", **LAYERS)),
    "no biases": lambda: random_model(config(**T5, **LAYERS)),
    "halting": lambda: random_model(HALTING),
    "GRU": lambda: shapes.random_model(shapes.shape()),
    "LSTM": lambda: shapes.random_model(shapes.shape(cell="lstm", score="projected", first_state="projected")),
    "RNN": lambda: shapes.random_model(shapes.shape(cell="rnn", score="general", attends="after")),
}


def spelled(token_ids: Iterable[int]) -> str:
    return " ".join(map(str, token_ids))


@pytest.mark.parametrize("name", MODELS)
def test_new_weights_go_into_the_same_graphs(name: str) -> None:
    """All of them, whatever the exporter calls them or computes of them. What is equal at first may not stay so."""
    torch.set_num_threads(1)
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter[: model.config.target_vocab_size] = 0.1
    traced = TracedModel(model, cast(Any, SimpleNamespace(decode=spelled)))
    limits = TargetLimits(growth=0.0, allowance=TOKENS)
    found = set[str]()
    for _ in range(3):
        with torch.no_grad():
            for parameter in filter(lambda one: one.requires_grad, model.parameters()):
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        with traced.open(model, limits) as translating:
            [translated] = translating.translate([SOURCE])
        target = [int(token) for token in translated.text.split()]
        generation = GenerationDefaults(max_new_tokens=model.config.max_positions)
        assert tuple(target) == greedy_tokens(model, SOURCE, target, generation)
        found.add(translated.text)
    assert len(found) > 1
