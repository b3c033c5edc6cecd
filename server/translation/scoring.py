"""Given targets: what a call may bring of them, and what becomes of their scores."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from engine.request import FinishReason, Hypothesis, Timings
from models.tokenizers.tokenizer import Tokenizer
from server.errors import NoTargets, TargetTooLong, TooManyTargets
from server.translation.sources import INLINE_CHARACTERS
from server.translation.targets import TargetToken


@dataclass(frozen=True, slots=True)
class Candidates:
    """A content, and the targets that are to be scored."""

    content: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TargetIds:
    """The targets of a content as tokens."""

    token_ids: tuple[tuple[int, ...], ...]
    """The end token included."""
    seconds: float
    """How long tokenising took."""


@dataclass(frozen=True, slots=True)
class TargetScore:
    """How probable a target is."""

    text: str
    """As its tokens have it."""
    log_prob: float
    score: float
    target_tokens: tuple[TargetToken, ...]


@dataclass(frozen=True, slots=True)
class ScoredContent:
    """The scores of a content's targets, in their order."""

    targets: tuple[TargetScore, ...]
    source_tokens: int
    timings: Timings


class TargetReader:
    """Checks and tokenises given targets. Each goes under the name of the request's field it came in."""

    def __init__(self, tokenizer: Tokenizer, end_id: int, max_tokens: int, max_targets: int) -> None:
        """`max_tokens`: of a target. max_targets: of a call."""
        self._tokenizer, self._end_id, self._max_targets = tokenizer, end_id, max_targets
        self._max_tokens = max_tokens
        self._max_characters = max_tokens * tokenizer.longest_piece
        """A target with more cannot fit, so it is refused without tokenising it."""

    def check(self, contents: Sequence[Candidates]) -> None:
        """The checks that cost next to nothing. Raises NoTargets, TooManyTargets, TargetTooLong."""
        for index, candidates in enumerate(contents):
            if not candidates.targets:
                raise NoTargets(f"contents[{index}].targets")
        targets = sum(len(candidates.targets) for candidates in contents)
        if targets > self._max_targets:
            raise TooManyTargets(targets, self._max_targets)
        for index, candidates in enumerate(contents):
            for place, target in enumerate(candidates.targets):
                if len(target) > self._max_characters:
                    raise TargetTooLong(_field(index, place), "characters", len(target), self._max_characters)

    async def tokenize(self, contents: Sequence[Candidates]) -> list[TargetIds]:
        """The targets of every content. Raises TargetTooLong."""
        if sum(len(target) for candidates in contents for target in candidates.targets) <= INLINE_CHARACTERS:
            return self._tokenize(contents)
        return await asyncio.to_thread(self._tokenize, contents)

    def _tokenize(self, contents: Sequence[Candidates]) -> list[TargetIds]:
        found = []
        for index, candidates in enumerate(contents):
            started = time.perf_counter()
            ids = tuple((*self._tokenizer.encode_target(target), self._end_id) for target in candidates.targets)
            found.append(TargetIds(ids, time.perf_counter() - started))
            for place, target in enumerate(ids):
                if len(target) > self._max_tokens:
                    raise TargetTooLong(_field(index, place), "tokens", len(target), self._max_tokens)
        return found


def given_hypothesis(token_ids: tuple[int, ...], log_probs: tuple[float, ...], length_penalty: float) -> Hypothesis:
    """A target as if a search had found it."""
    total = fsum(log_probs)
    score = total / len(token_ids) ** length_penalty
    return Hypothesis(token_ids, score, FinishReason.END_TOKEN, log_probs, log_prob=total)


def _field(content: int, target: int) -> str:
    return f"contents[{content}].targets[{target}]"
