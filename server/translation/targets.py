"""From the target tokens of a call to texts."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.links import Link
from engine.request import FinishReason, Hypothesis
from models.tokenizers.tokenizer import NOWHERE, Span, Tokenizer, pieces, without_spaces

INLINE_TOKENS = 1024
"""What a call has more of is detokenised on another thread: the event loop would stand still for milliseconds."""


@dataclass(frozen=True, slots=True)
class TargetToken:
    """A token of a target."""

    token_id: int
    text: str
    """What it adds."""
    begin: int
    """Where that begins, in characters."""
    log_prob: float


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which source tokens the tokens of a target come from."""

    source_spans: tuple[Span, ...]
    """Of each token, in the content, without the spaces around it. One without text is empty."""
    target_spans: tuple[Span, ...]
    """The same in the target."""
    links: tuple[Link, ...]
    """Between tokens that have text. In the order of the target's; of each token the strongest first."""


@dataclass(frozen=True, slots=True)
class Attention:
    """How much tokens look at source tokens."""

    spans: tuple[Span, ...]
    """Where each token that looks stands in its text, without the spaces around it. One without text is empty."""
    shape: tuple[int, ...]
    """(layers, heads, tokens that look, source tokens)"""
    weights: bytes
    """float16, little-endian."""


@dataclass(frozen=True, slots=True)
class TargetText:
    """One possible translation."""

    text: str
    score: float
    tokens: int
    finish_reason: FinishReason
    target_tokens: tuple[TargetToken, ...] = ()
    """If they were wanted."""
    expected_utility: float | None = None
    """Of one that was chosen among samples by it."""
    alignment: Alignment | None = None
    """If it was wanted."""
    attention: Attention | None = None
    """If it was wanted."""
    log_prob: float = 0.0
    """sum(log p) of its tokens."""
    token_ids: tuple[int, ...] = ()
    """What it was written from, as the hypothesis has them. Empty for one that is put together from several."""


class Detokenized(NamedTuple):
    """The texts of one content's hypotheses."""

    texts: tuple[TargetText, ...]
    started: float
    """When detokenising began, by time.perf_counter."""
    seconds: float
    """How long it took."""


class TargetWriter:
    """Detokenises the targets of one call."""

    def __init__(self, tokenizer: Tokenizer, prefix: tuple[int, ...] = ()) -> None:
        """`prefix`: the tokens before those of every hypothesis."""
        self._tokenizer, self._prefix = tokenizer, prefix
        self._tokens = 0
        """Of all targets so far. Together they count: those of a call may all be there before the loop gets a turn."""

    async def write(
        self, hypotheses: Sequence[Hypothesis], source_spans: Callable[[], Sequence[Span]] | None = None
    ) -> Detokenized:
        """The texts of one content, in the order of the hypotheses.

        source_spans: where the tokens of the content stand in it, if an alignment is wanted
        """
        # With its tokens, a text is decoded once for each of them.
        each = source_spans is not None or any(one.log_probs or one.attention is not None for one in hypotheses)
        self._tokens += sum(len(one.token_ids) ** (2 if each else 1) for one in hypotheses)
        if self._tokens <= INLINE_TOKENS:
            return self._write(hypotheses, source_spans)
        return await asyncio.to_thread(self._write, hypotheses, source_spans)

    def _write(
        self, hypotheses: Sequence[Hypothesis], source_spans: Callable[[], Sequence[Span]] | None
    ) -> Detokenized:
        started = time.perf_counter()
        spans = None if source_spans is None else tuple(source_spans())
        texts = tuple(self._text(one, spans) for one in hypotheses)
        return Detokenized(texts, started, time.perf_counter() - started)

    def _text(self, hypothesis: Hypothesis, source_spans: tuple[Span, ...] | None) -> TargetText:
        ids = hypothesis.token_ids
        text = self._tokenizer.decode((*self._prefix, *ids))
        tokens = tuple(self._target_tokens(hypothesis)) if hypothesis.log_probs else ()
        looks = source_spans is not None or hypothesis.attention is not None
        spans = tuple(self._target_spans(hypothesis, text)) if looks else ()
        return TargetText(
            text,
            hypothesis.score,
            len(ids),
            hypothesis.finish_reason,
            tokens,
            alignment=None if source_spans is None else _alignment(hypothesis.links, source_spans, spans),
            attention=None if hypothesis.attention is None else attention(hypothesis.attention, spans),
            log_prob=hypothesis.log_prob,
            token_ids=ids,
        )

    def _target_spans(self, hypothesis: Hypothesis, text: str) -> Iterator[Span]:
        for piece, begin in pieces(self._tokenizer, hypothesis.token_ids, self._prefix):
            yield without_spaces(text, begin, begin + len(piece))

    def _target_tokens(self, hypothesis: Hypothesis) -> Iterator[TargetToken]:
        found = pieces(self._tokenizer, hypothesis.token_ids, self._prefix)
        for token_id, log_prob, (text, begin) in zip(hypothesis.token_ids, hypothesis.log_probs, found, strict=True):
            yield TargetToken(token_id, text, begin, log_prob)


def _alignment(found: Iterable[Link], source_spans: tuple[Span, ...], target_spans: tuple[Span, ...]) -> Alignment:
    links = (link for link in found if NOWHERE not in (source_spans[link.source], target_spans[link.target]))
    return Alignment(source_spans, target_spans, tuple(links))


def attention(weights: NDArray[np.float16], spans: Sequence[Span]) -> Attention:
    """weights: [layers, heads, tokens, source]; spans: of the tokens."""
    return Attention(tuple(spans), weights.shape, weights.astype("<f2", copy=False).tobytes())
