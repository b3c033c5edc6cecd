"""Between a step of the decoder and the searches: the best tokens of rows whose requests have processors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.decoder import NOT_FINITE, Ask, Found
from engine.processors.chain import Chain
from engine.processors.processor import Seen
from engine.processors.targets import FedTokens

SPARE = 8
"""Candidates more than a search needs: mostly more than the processors take away of a row's best."""


@dataclass(frozen=True, slots=True)
class Processed:
    """What becomes of the scores of a row."""

    chain: Chain
    """At least one processor."""
    of_logits: bool
    """They change logits, and what is told of a token is the model's log-probability: `generate` without beams."""
    source_ids: tuple[int, ...]


class ProcessorStage:
    """The processors of a running batch. Costs nothing while no request has any."""

    def __init__(self, rows: int) -> None:
        """Room for so many."""
        self._fed = FedTokens(rows)
        self._requests = 0
        self._best = 1
        self._scratch = np.full((0, 0), -np.inf, np.float32)

    @property
    def idle(self) -> bool:
        """No request has processors."""
        return not self._requests

    def begin(self) -> None:
        """One request more has processors. Its row has been fed nothing yet."""
        self._requests += 1

    def end(self) -> None:
        """One less."""
        self._requests -= 1

    def start(self, row: int) -> None:
        """A row is fed nothing yet."""
        self._fed.start(row)

    def feed(self, token_ids: NDArray[np.int64]) -> None:
        """Every live row is fed one token [live]."""
        if self._requests:
            self._fed.feed(token_ids)

    def take(self, parents: Sequence[int]) -> None:
        """Row i continues old row parents[i]."""
        if self._requests:
            self._fed.take(parents)

    def ask(self, searches: Ask) -> Ask:
        """What must be seen of the rows where searches ask for that."""
        self._best = searches.best
        if not self._requests:
            return searches
        return replace(searches, best=searches.best + SPARE, logits=True)

    def process(self, found: Found, rows: Sequence[Processed | None]) -> Found:
        """What the searches see of the step. rows: what becomes of each [live]."""
        token_ids, log_probs = found.token_ids[:, : self._best].copy(), found.log_probs[:, : self._best].copy()
        alike: dict[tuple[Chain, bool], list[int]] = {}
        for row, processed in enumerate(rows):
            if processed is not None and token_ids[row, 0] != NOT_FINITE:
                alike.setdefault((processed.chain, processed.of_logits), []).append(row)
        for (chain, of_logits), together in alike.items():
            sources = [one.source_ids for row in together if (one := rows[row]) is not None]
            group = Group(np.array(together), chain, of_logits, sources)
            token_ids[together], log_probs[together] = self._best_of(found, group)
        return replace(found, token_ids=token_ids, log_probs=log_probs)

    def _best_of(self, found: Found, group: "Group") -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best tokens of rows after the processors, and their log-probabilities [rows, best]."""
        return self._of_known(found, group) if group.known_suffice else self._of_whole_rows(found, group)

    def _of_known(self, found: Found, group: "Group") -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Looks at those that the decoder has found."""
        known, log_probs = found.token_ids[group.rows], found.log_probs[group.rows]
        seen = self._seen(group)
        scores = self._nothing(len(known), 1 + max(known.max(), seen.targets.max(), *map(max, group.sources)))
        np.put_along_axis(scores, known, log_probs, 1)
        group.process(scores, seen)
        token_ids, best = best_among(scores, known, self._best)
        np.put_along_axis(scores, known, -np.inf, 1)
        unsure = np.flatnonzero(best[:, -1] < log_probs[:, -1])
        if len(unsure):
            token_ids[unsure], best[unsure] = self._of_whole_rows(found, group.part(unsure))
        return token_ids, best

    def _of_whole_rows(self, found: Found, group: "Group") -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Looks at the whole vocabulary where what the decoder has found is not enough."""
        assert found.logits is not None
        known, logits = found.token_ids[group.rows], found.logits(group.rows)
        normaliser = np.take_along_axis(logits, known[:, :1], 1) - found.log_probs[group.rows, :1]
        scores = logits.copy() if group.of_logits else logits - normaliser
        least = np.take_along_axis(scores, known[:, -1:], 1)
        group.process(scores, self._seen(group))
        token_ids, best = best_among(scores, known, self._best)
        unsure = np.flatnonzero(best[:, -1:] < least) if not group.raises else np.arange(len(known))
        if len(unsure):
            all_ids = np.argpartition(-scores[unsure], self._best - 1, 1)[:, : self._best].astype(np.int64)
            token_ids[unsure], best[unsure] = best_among(scores[unsure], all_ids, self._best)
        return token_ids, np.take_along_axis(logits, token_ids, 1) - normaliser if group.of_logits else best

    def _seen(self, group: "Group") -> Seen:
        return Seen(self._fed.of(group.rows), group.sources)

    def _nothing(self, rows: int, tokens: int) -> NDArray[np.float32]:
        """Scores of -inf [rows, at least so many tokens]. Whoever changes them leaves them so."""
        if self._scratch.shape[0] < rows or self._scratch.shape[1] < tokens:
            shape = tuple(max(two) for two in zip(self._scratch.shape, (rows, 2 * tokens), strict=True))
            self._scratch = np.full(shape, -np.inf, np.float32)
        return self._scratch[:rows]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are processed alike."""

    rows: NDArray[np.intp]
    chain: Chain
    of_logits: bool
    sources: Sequence[tuple[int, ...]]
    """Of each row."""

    @property
    def raises(self) -> bool:
        """A token may become one of the best that was none."""
        return any(processor.raises for processor in self.chain)

    @property
    def known_suffice(self) -> bool:
        """Mostly: the best tokens and their log-probabilities, without whole rows of logits."""
        return not (self.raises or (self.of_logits and any(processor.of_logits for processor in self.chain)))

    def process(self, scores: NDArray[np.float32], seen: Seen) -> None:
        """Changes the scores of the rows in place [rows, vocabulary]."""
        for processor in self.chain:
            processor(scores, seen)

    def part(self, which: NDArray[np.intp]) -> "Group":
        """Some of the rows."""
        return replace(self, rows=self.rows[which], sources=[self.sources[one] for one in which.tolist()])


def best_among(
    scores: NDArray[np.float32], token_ids: NDArray[np.int64], best: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The best of some tokens [rows, some], and their scores [rows, best]. Of equal scores, the lower id's is first."""
    token_ids = np.sort(token_ids, 1)
    found = np.take_along_axis(scores, token_ids, 1)
    order = np.argsort(-found, 1, kind="stable")[:, :best]
    return np.take_along_axis(token_ids, order, 1), np.take_along_axis(found, order, 1)
