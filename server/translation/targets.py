"""From the target tokens of a call to texts."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine.request import FinishReason, Hypothesis
from models.tokenizers.tokenizer import Tokenizer

INLINE_TOKENS = 1024
"""What a call has more of is detokenised on another thread: the event loop would stand still for milliseconds."""


@dataclass(frozen=True, slots=True)
class TargetText:
    """One possible translation."""

    text: str
    score: float
    tokens: int
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Detokenized:
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

    async def write(self, hypotheses: Sequence[Hypothesis]) -> Detokenized:
        """The texts of one content, in the order of the hypotheses."""
        self._tokens += sum(len(hypothesis.token_ids) for hypothesis in hypotheses)
        if self._tokens <= INLINE_TOKENS:
            return self._write(hypotheses)
        return await asyncio.to_thread(self._write, hypotheses)

    def _write(self, hypotheses: Sequence[Hypothesis]) -> Detokenized:
        started = time.perf_counter()
        texts = tuple(map(self._text, hypotheses))
        return Detokenized(texts, started, time.perf_counter() - started)

    def _text(self, hypothesis: Hypothesis) -> TargetText:
        ids = hypothesis.token_ids
        text = self._tokenizer.decode((*self._prefix, *ids))
        return TargetText(text, hypothesis.score, len(ids), hypothesis.finish_reason)
