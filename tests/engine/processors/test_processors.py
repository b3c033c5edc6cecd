"""Each processor does what Hugging Face's of the same name does to each row. A target has one token of a prefix."""

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
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
)
from transformers import (
    ExponentialDecayLengthPenalty as HuggingFacesDecay,
)

from engine.processors.length import ExponentialDecayLengthPenalty
from engine.processors.phrases import PrefixBias, SequenceBias, SuppressTokens, no_bad_words
from engine.processors.processor import NO_TARGET, Processor, Seen
from engine.processors.repetition import (
    EncoderNoRepeatNGram,
    EncoderRepetitionPenalty,
    NoRepeatNGram,
    RepetitionPenalty,
)
from models.decoding import TokenIds

VOCABULARY = 12
"""So few that sequences repeat."""
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)
ROWS = st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=5)
PENALTIES = st.floats(0.1, 10.0)
SIZES = st.integers(1, 5)
PHRASES = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=3).map(tuple)
BIASES = st.dictionaries(PHRASES, st.floats(-5.0, 5.0, width=32).filter(bool), min_size=1, max_size=20)
END = VOCABULARY - 1


@dataclass(frozen=True)
class Pair:
    """A processor of ours, and what makes Hugging Face's for a source [1, tokens]."""

    ours: Processor
    theirs: Callable[[torch.Tensor], LogitsProcessor]


def bad_words(phrases: Sequence[TokenIds]) -> Pair:
    """They cannot be said."""
    ours = no_bad_words([*phrases, (END,)], frozenset({END}))
    assert ours is not None
    return Pair(ours, lambda source: NoBadWordsLogitsProcessor([list(one) for one in phrases], END))


PAIRS = st.one_of(
    PENALTIES.map(lambda x: Pair(RepetitionPenalty(x), lambda source: RepetitionPenaltyLogitsProcessor(x))),
    PENALTIES.map(
        lambda x: Pair(EncoderRepetitionPenalty(x), lambda source: EncoderRepetitionPenaltyLogitsProcessor(x, source))
    ),
    SIZES.map(lambda n: Pair(NoRepeatNGram(n), lambda source: NoRepeatNGramLogitsProcessor(n))),
    SIZES.map(lambda n: Pair(EncoderNoRepeatNGram(n), lambda source: EncoderNoRepeatNGramLogitsProcessor(n, source))),
    BIASES.map(lambda of: Pair(SequenceBias(tuple(of.items())), lambda source: SequenceBiasLogitsProcessor(of))),
    st.lists(PHRASES.filter(lambda phrase: phrase != (END,)), min_size=1, max_size=20).map(bad_words),
    st.tuples(st.integers(0, 6), st.floats(0.1, 3.0).filter(lambda factor: factor != 1)).map(
        lambda decay: Pair(
            ExponentialDecayLengthPenalty(*decay, frozenset({END})),
            lambda source: HuggingFacesDecay(decay, END, input_ids_seq_length=1),
        )
    ),
    TOKENS.map(lambda ids: Pair(SuppressTokens(tuple(ids)), lambda source: SuppressTokensLogitsProcessor(ids))),
    st.tuples(TOKENS, st.integers(0, 2)).map(
        lambda of: Pair(
            SuppressTokens(tuple(of[0]), at=of[1]),
            lambda source: SuppressTokensAtBeginLogitsProcessor(of[0], begin_index=1 + of[1]),
        )
    ),
)


def seen(rows: Sequence[tuple[list[int], list[int]]]) -> Seen:
    """Of targets and sources."""
    longest = max(len(target) for target, _ in rows)
    return Seen(
        np.array([[NO_TARGET] * (longest - len(target)) + target for target, _ in rows]),
        [source for _, source in rows],
        np.array([len(target) - 1 for target, _ in rows]),
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
        np.testing.assert_allclose(scores[row], expected[0].numpy(), rtol=2e-6, atol=1e-6)
    assert pair.ours.raises or (scores <= before).all()


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_an_end_that_cannot_be_stays_so(factor: float) -> None:
    """Without a warning: numpy has one for what is no number."""
    scores = np.full((1, VOCABULARY), -np.inf, np.float32)
    ExponentialDecayLengthPenalty(0, factor, frozenset({END}))(scores, seen([([3, 4], [5])]))
    assert np.isneginf(scores).all()


@pytest.mark.parametrize("size", [1, 3])
def test_what_has_no_such_sequence_keeps_its_scores(size: int) -> None:
    scores = np.zeros((1, VOCABULARY), np.float32)
    EncoderNoRepeatNGram(size)(scores, seen([([3], [4, 5])]))
    assert np.isneginf(scores).sum() == (2 if size == 1 else 0)


@settings(max_examples=200, deadline=None)
@given(
    prefix=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    target=st.lists(st.integers(0, 3), max_size=6),
    beta=st.floats(0.01, 1.0),
)
def test_a_prefix_is_preferred_while_it_is_followed(prefix: list[int], target: list[int], beta: float) -> None:
    """p' = (1 - beta) p + beta [the prefix's next token], as CTranslate2 has it."""
    before = np.random.default_rng(len(target)).normal(0, 3, (1, VOCABULARY)).astype(np.float32)
    scores = before.copy()
    PrefixBias(tuple(prefix), beta)(scores, seen([([0, *target], [1])]))
    if len(target) >= len(prefix) or target != prefix[: len(target)]:
        assert (scores == before).all()
    else:
        expected = (1 - beta) * torch.from_numpy(before).double().softmax(1).numpy()
        expected[0, prefix[len(target)]] += beta
        np.testing.assert_allclose(np.exp(scores), expected, atol=1e-6)
