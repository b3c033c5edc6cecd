"""Each processor does what Hugging Face's of the same name does to each row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    LogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from engine.processors.processor import NO_TARGET, Processor, Seen
from engine.processors.repetition import (
    EncoderNoRepeatNGram,
    EncoderRepetitionPenalty,
    NoRepeatNGram,
    RepetitionPenalty,
)

VOCABULARY = 12
"""So few that sequences repeat."""
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)
ROWS = st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=5)
PENALTIES = st.floats(0.1, 10.0)
SIZES = st.integers(1, 5)


@dataclass(frozen=True)
class Pair:
    """A processor of ours, and what makes Hugging Face's for a source [1, tokens]."""

    ours: Processor
    theirs: Callable[[torch.Tensor], LogitsProcessor]


PAIRS = st.one_of(
    PENALTIES.map(lambda x: Pair(RepetitionPenalty(x), lambda source: RepetitionPenaltyLogitsProcessor(x))),
    PENALTIES.map(
        lambda x: Pair(EncoderRepetitionPenalty(x), lambda source: EncoderRepetitionPenaltyLogitsProcessor(x, source))
    ),
    SIZES.map(lambda n: Pair(NoRepeatNGram(n), lambda source: NoRepeatNGramLogitsProcessor(n))),
    SIZES.map(lambda n: Pair(EncoderNoRepeatNGram(n), lambda source: EncoderNoRepeatNGramLogitsProcessor(n, source))),
)


def seen(rows: Sequence[tuple[list[int], list[int]]]) -> Seen:
    """Of targets and sources."""
    longest = max(len(target) for target, _ in rows)
    return Seen(
        np.array([[NO_TARGET] * (longest - len(target)) + target for target, _ in rows]),
        [source for _, source in rows],
    )


@settings(max_examples=1000, deadline=None)
@given(rows=ROWS, pair=PAIRS, seed=st.integers(0, 99))
def test_scores_are_those_of_transformers(rows: list[tuple[list[int], list[int]]], pair: Pair, seed: int) -> None:
    before = np.random.default_rng(seed).normal(0, 3, (len(rows), VOCABULARY)).astype(np.float32)
    scores = before.copy()
    pair.ours(scores, seen(rows))
    for row, (target, source) in enumerate(rows):
        theirs = pair.theirs(torch.tensor([source]))
        expected = theirs(torch.tensor([target]), torch.from_numpy(before[row : row + 1].copy()))
        np.testing.assert_allclose(scores[row], expected[0].numpy(), rtol=1e-6)
    assert pair.ours.raises or (scores <= before).all()


@pytest.mark.parametrize("size", [1, 3])
def test_what_has_no_such_sequence_keeps_its_scores(size: int) -> None:
    scores = np.zeros((1, VOCABULARY), np.float32)
    EncoderNoRepeatNGram(size)(scores, seen([([3], [4, 5])]))
    assert np.isneginf(scores).sum() == (2 if size == 1 else 0)
