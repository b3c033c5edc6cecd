"""From the texts of a call to source tokens, with everything that can be wrong with a text."""

import asyncio
import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import NamedTuple

from models.tokenizers.tokenizer import NOWHERE, Span, Tokenizer
from models.tokenizers.tokenizer_json import TokenizerJson
from server.errors import BlankContent, SourceTooLong
from server.telemetry.calls import current_call
from server.telemetry.metrics.model import ModelMetrics

INLINE_CHARACTERS = 4096
"""Calls with more are taken apart and tokenised on another thread: the event loop would stand still for some ms."""

FIRST_TOKENS_PER_CHARACTER, FOLLOW = 0.25, 1 / 256
"""What is guessed before there were texts, and the weight of the newest text in later guesses."""


class SourceText(NamedTuple):
    """A text as tokens."""

    text: str
    token_ids: tuple[int, ...]
    """The end token included."""
    started: float
    """When tokenising began, by time.perf_counter."""
    seconds: float
    """How long it took."""
    truncated: bool = False
    """Its end was cut off."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How texts become tokens."""

    target_language: str = ""
    """What they become, as the model calls it."""
    source_language: str = ""
    """What they are in, as the model calls it."""
    prompt: str = ""
    """What is put before every one."""
    truncate: bool = False
    """Cut the end off one that is too long, instead of refusing it."""
    seconds: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)
    """What is read together with a text, by the text's field."""


class SourceReader:
    """Checks and tokenises texts. Each goes under the name of the request's field it came in."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int, metrics: ModelMetrics) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._max_characters = max_tokens * tokenizer.longest_piece
        """A text with more cannot fit, so it is refused without tokenising it."""
        self._metrics = metrics
        self._tokens_per_character = FIRST_TOKENS_PER_CHARACTER
        self._tokens_of_nothing: dict[tuple[str, str, str], int] = {}
        """Of an empty text behind a prompt in two languages: the end token, and what else is put around a text."""

    def check(self, texts: Mapping[str, str], reading: Reading = Reading()) -> None:
        """The checks that cost next to nothing. Raises BlankContent or SourceTooLong."""
        for field, text in chain(texts.items(), ((f"second_{field}", it) for field, it in reading.seconds.items())):
            if not text or text.isspace():
                raise BlankContent(field, len(text))
            if len(text) > self._max_characters and not reading.truncate:
                raise SourceTooLong(field, "characters", len(text), self._max_characters)

    def guess(self, texts: Collection[str]) -> tuple[float, float]:
        """How many tokens all of them and the longest have, about, from their lengths and from the texts before."""
        lengths, each = [*map(len, texts)], self._tokens_per_character
        longest = min(1 + each * max(lengths, default=0), self._max_tokens)
        if longest < self._max_tokens:
            return len(lengths) + each * sum(lengths), longest
        return sum(min(1 + each * length, self._max_tokens) for length in lengths), longest

    def fits(self, text: str, reading: Reading) -> bool:
        """Whether a text has no more tokens than the model takes."""
        if len(text) > self._max_characters:
            return False
        return len(self._encode(reading.prompt + text, reading)) <= self._max_tokens

    async def tokenize(self, texts: Mapping[str, str], reading: Reading = Reading()) -> list[SourceText]:
        """The tokens of every text, the end token included. Raises BlankContent or SourceTooLong."""
        if sum(map(len, texts.values())) <= INLINE_CHARACTERS:
            return self._tokenize_all(texts, reading)
        return await asyncio.to_thread(self._tokenize_all, texts, reading)

    def spans(self, source: SourceText, reading: Reading) -> list[Span]:
        """Where each token of a text stands in it. What is put before it has none."""
        before, read = len(reading.prompt), source.text[: self._max_characters]
        found = self._tokenizer.spans(reading.prompt + read, reading.target_language, reading.source_language)
        if len(found) > len(source.token_ids):
            last = self._after_a_text(source.token_ids, reading)
            found = [*found[: len(source.token_ids) - last], *found[len(found) - last :]]
        return [(begin - before, end - before) if begin >= before and begin < end else NOWHERE for begin, end in found]

    def _tokenize_all(self, texts: Mapping[str, str], reading: Reading) -> list[SourceText]:
        return [self._tokenize(field, text, reading) for field, text in texts.items()]

    def _tokenize(self, field: str, text: str, reading: Reading) -> SourceText:
        started = time.perf_counter()
        read = text[: self._max_characters]  # all of it, but of one that is cut off anyway
        source_ids = tuple(self._encode(reading.prompt + read, reading))
        if field in reading.seconds:
            source_ids = self._encode_pair(read, source_ids, field, reading)
        seconds = time.perf_counter() - started
        self._metrics.tokenized(seconds, current_call().exemplar)
        if len(source_ids) <= self._of_nothing(reading):  # all characters were invisible ones
            raise BlankContent(field, len(text))
        too_long = len(source_ids) > self._max_tokens
        if too_long and not reading.truncate:
            raise SourceTooLong(field, "tokens", len(source_ids), self._max_tokens)
        self._tokens_per_character += FOLLOW * (len(source_ids) / len(read) - self._tokens_per_character)
        if too_long:
            last = self._after_a_text(source_ids, reading)
            source_ids = (*source_ids[: self._max_tokens - last], *source_ids[len(source_ids) - last :])
        return SourceText(text, source_ids, started, seconds, too_long or len(read) < len(text))

    def _encode_pair(self, text: str, alone: tuple[int, ...], field: str, reading: Reading) -> tuple[int, ...]:
        """The tokens of a text and its second one. alone: those of the first."""
        assert isinstance(self._tokenizer, TokenizerJson)  # as `ServedModel.labels_pairs` says
        second = reading.seconds[field]
        pair = tuple(self._tokenizer.encode_pair(text, second[: self._max_characters]))
        around = len(self._tokenizer.encode_pair("", "")) - self._of_nothing(reading)
        if len(pair) <= len(alone) + around:
            raise BlankContent(f"second_{field}", len(second))
        if len(alone) + around >= self._max_tokens:  # nothing of the second one would be left
            raise SourceTooLong(field, "tokens", len(alone) + around, self._max_tokens)
        return pair

    def _after_a_text(self, source_ids: Sequence[int], reading: Reading) -> int:
        """How many tokens stand after every text, such as the end token: those that end an empty one, too."""
        nothing = self._encode("", reading)
        pairs = zip(reversed(nothing), reversed(source_ids), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _of_nothing(self, reading: Reading) -> int:
        around = reading.prompt, reading.target_language, reading.source_language
        if around not in self._tokens_of_nothing:
            self._tokens_of_nothing[around] = len(self._encode(reading.prompt, reading))
        return self._tokens_of_nothing[around]

    def _encode(self, text: str, reading: Reading) -> list[int]:
        return self._tokenizer.encode(text, reading.target_language, reading.source_language)
