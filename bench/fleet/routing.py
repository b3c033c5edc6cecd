"""Which replica gets a text.

Whoever routes knows of the replicas what they last reported, and reports are as old as they are. Beyond SUBSET
replicas nobody compares all of them: then `least requests` is that of a random subset (Beyer et al. 2016, "Site
Reliability Engineering", chapter 20).
"""

import random
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from bench.fleet.replica import Replica, Text

SUBSET = 100
LONG_TOKENS = 40
"""Texts from here on are long ones."""


class Reports:
    """What replicas have said of themselves, all at a time, every so many seconds. 0: what is true."""

    def __init__(self, replicas: Sequence[Replica], every_s: float) -> None:
        self._replicas, self._every_s, self._next_s = replicas, every_s, 0.0
        self.texts: NDArray[np.int64] = np.zeros(len(replicas), np.int64)
        self.backlog_s: NDArray[np.float64] = np.zeros(len(replicas))

    def tick(self, now: float) -> None:
        """The time is this."""
        if self._every_s and now >= self._next_s:
            self._next_s = now + self._every_s
            self.texts[:] = [one.texts for one in self._replicas]
            self.backlog_s[:] = [one.backlog_s for one in self._replicas]

    def changed(self, number: int) -> None:
        """A replica has a text more or less."""
        if not self._every_s:
            self.texts[number], self.backlog_s[number] = self._replicas[number].texts, self._replicas[number].backlog_s


Route = Callable[[Text], int]
"""The number of a replica."""


def routes(reports: Reports, alive: Sequence[int], chance: random.Random, long_share: float) -> dict[str, Route]:
    """All ways there are, by name. `alive`: the replicas that there are; may change.

    long_share: of the work, that long texts are
    """
    turn = count()
    texts, backlog_s = reports.texts, reports.backlog_s

    def two(of: Sequence[int]) -> tuple[int, int]:
        return of[int(chance.random() * len(of))], of[int(chance.random() * len(of))]

    def least(text: Text) -> int:
        numbers = np.array(alive if len(alive) <= SUBSET else chance.choices(alive, k=SUBSET))
        of = texts[numbers]
        equal = np.flatnonzero(of == of.min())  # among equals by chance: else all go to the first
        return int(numbers[equal[int(chance.random() * len(equal))]])

    def by_length(text: Text) -> int:
        """Long texts have the replicas for themselves that their share of the work takes."""
        border = min(max(1, round(long_share * len(alive))), len(alive))
        of = alive[:border] if text.source_tokens >= LONG_TOKENS else alive[border:] or alive
        return min(two(of), key=backlog_s.__getitem__)

    return {
        "round robin": lambda text: alive[next(turn) % len(alive)],
        "least requests": least,
        "power of two": lambda text: min(two(alive), key=texts.__getitem__),
        "queue time": lambda text: min(two(alive), key=backlog_s.__getitem__),
        "length": by_length,
    }
