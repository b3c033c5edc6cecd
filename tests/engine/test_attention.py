"""Of a random model: attention is what transformers says by `output_attentions`, and coverage what follows of it."""

from pathlib import Path

import numpy as np
import pytest

from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.offline import decode
from export.verification.reference import TransformersModel
from models.decoding import Decoding
from models.package.folder import Package
from tests.engine.exact.test_families import random_sources
from tests.oracles import HuggingFace

BOUND = 1e-3
"""Largest difference of a weight: half of it is what float16 makes of weights near 1."""
PENALTY, SCORE_BOUND = 0.4, 1e-3


def test_like_transformers(tiny_checkpoint: Path, tiny_package: Package) -> None:
    """Greedily, of beams and of samples, all in one batch."""
    model, oracle = Loadable.of(tiny_package), HuggingFace(tiny_checkpoint)
    theirs = TransformersModel(tiny_checkpoint)
    sources = random_sources(3, model.graphs.spec.vocabulary.end_id)
    decodings = [
        Decoding(max_new_tokens=25, with_attention=True, coverage_penalty=PENALTY),
        Decoding(3, 2, 25, early_stopping=True, with_attention=True, coverage_penalty=PENALTY),
        Decoding(1, 2, 25, do_sample=True, seed=3, with_attention=True),
    ]
    requests = [(source, decoding) for decoding in decodings for source in sources]
    with load(model, CPU, Limits(workers=2)) as runner:
        answers = list(decode(runner, model.rules, requests))
    for (source, decoding), answer in zip(requests, answers, strict=True):
        assert len(answer.hypotheses) == decoding.num_return_sequences
        assert decoding.do_sample or list(answer.hypotheses) == sorted(answer.hypotheses, key=lambda one: -one.score)
        for one in answer.hypotheses:
            encoder, cross, _ = theirs.attention(source, [*model.rules.prefix_ids, *one.token_ids[:-1]])
            assert one.attention is not None and answer.source_attention is not None
            np.testing.assert_allclose(answer.source_attention, encoder.numpy(), atol=BOUND, rtol=0)
            np.testing.assert_allclose(one.attention, cross.numpy(), atol=BOUND, rtol=0)
            if decoding.coverage_penalty:
                left_out = cross[-1].mean(0).sum(0).clamp(max=1).log().sum().item()
                expected = oracle.score(source, one.token_ids, decoding) + PENALTY * left_out
                assert one.score == pytest.approx(expected, abs=SCORE_BOUND)
