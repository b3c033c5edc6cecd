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
        return replace(searches, best=searches.best + SPARE, normaliser=True, logits=True)

    def process(self, found: Found, rows: Sequence[Processed | None]) -> Found:
        """What the searches see of the step. rows: what becomes of each [live]."""
        token_ids, log_probs = found.token_ids[:, : self._best].copy(), found.log_probs[:, : self._best].copy()
        alike: dict[tuple[Chain, bool], list[int]] = {}
        for row, processed in enumerate(rows):
            if processed is not None and token_ids[row, 0] != NOT_FINITE:
                alike.setdefault((processed.chain, processed.of_logits), []).append(row)
        for (chain, of_logits), together in alike.items():
            which = np.array(together)
            seen = Seen(self._fed.of(which), [one.source_ids for row in together if (one := rows[row]) is not None])
            token_ids[which], log_probs[which] = self._best_of(found, which, chain, of_logits, seen)
        return replace(found, token_ids=token_ids, log_probs=log_probs)

    def _best_of(
        self, found: Found, rows: NDArray[np.intp], chain: Chain, of_logits: bool, seen: Seen
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best tokens after the processors, and their log-probabilities [rows, best]."""
        assert found.logits is not None and found.normaliser is not None
        logits, normaliser = found.logits[rows], found.normaliser[rows, None]
        scores = logits.copy() if of_logits else logits - normaliser
        # No token that is neither among those nor has risen scores more than the last of them did.
        known, least = found.token_ids[rows], found.log_probs[rows, -1] + (normaliser[:, 0] if of_logits else 0)
        risen = [ids for processor in chain if (ids := processor(scores, seen)) is not None]
        token_ids, best = best_among(scores, np.concatenate([known, *risen], 1), self._best)
        unsure = np.flatnonzero(best[:, -1] < least)
        if len(unsure):
            token_ids[unsure], best[unsure] = best_of_all(scores[unsure], self._best)
        return token_ids, np.take_along_axis(logits, token_ids, 1) - normaliser if of_logits else best


def best_among(
    scores: NDArray[np.float32], token_ids: NDArray[np.int64], best: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The best of some tokens [rows, some], which may stand there twice, and their scores [rows, best].

    Of equal scores, the lower id's is first. A row with fewer tokens ends with scores of -inf.
    """
    token_ids = np.sort(token_ids, 1)
    found = np.take_along_axis(scores, token_ids, 1)
    found[:, 1:][token_ids[:, 1:] == token_ids[:, :-1]] = -np.inf
    order = np.argsort(-found, 1, kind="stable")[:, :best]
    return np.take_along_axis(token_ids, order, 1), np.take_along_axis(found, order, 1)


def best_of_all(scores: NDArray[np.float32], best: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The same of all tokens."""
    return best_among(scores, np.argpartition(-scores, best - 1, 1)[:, :best].astype(np.int64), best)
