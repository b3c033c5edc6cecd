"""From the target tokens of a call to texts."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.request import FinishReason, Hypothesis
from models.tokenizers.tokenizer import TextStream, Tokenizer

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
        # With its tokens, a text is decoded once for each of them.
        self._tokens += sum(len(one.token_ids) * max(1, len(one.log_probs)) for one in hypotheses)
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
        tokens = tuple(self._target_tokens(hypothesis)) if hypothesis.log_probs else ()
        return TargetText(text, hypothesis.score, len(ids), hypothesis.finish_reason, tokens)

    def _target_tokens(self, hypothesis: Hypothesis) -> Iterator[TargetToken]:
        """What each adds to the text: behind that of the prefix, they are all of it."""
        ids, stream = hypothesis.token_ids, TextStream(self._tokenizer)
        begin = len(stream.push(self._prefix))
        for place, (token_id, log_prob) in enumerate(zip(ids, hypothesis.log_probs, strict=True), 1):
            last = place == len(ids)
            text = stream.finish((*self._prefix, *ids)) if last else stream.push([token_id])
            yield TargetToken(token_id, text, begin, log_prob)
            begin += len(text)
