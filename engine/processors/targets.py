"""What the rows of a running batch have been fed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.processors.processor import NO_TARGET

STEPS = 64
"""That there is room for at first."""


class FedTokens:
    """Of rows 0..live-1, in the order of a cache's."""

    def __init__(self, rows: int) -> None:
        """Room for so many."""
        self._tokens = np.zeros((rows, STEPS), np.int64)
        self._lengths = np.zeros(rows, np.intp)

    def start(self, row: int) -> None:
        """It has been fed nothing yet."""
        self._lengths[row] = 0

    def feed(self, token_ids: NDArray[np.int64]) -> None:
        """One token more of each live row [live]."""
        live = np.arange(len(token_ids))
        lengths = self._lengths[live]
        if lengths.max(initial=0) == self._tokens.shape[1]:
            self._tokens = np.pad(self._tokens, ((0, 0), (0, self._tokens.shape[1])))
        self._tokens[live, lengths] = token_ids
        self._lengths[live] += 1

    def take(self, parents: Sequence[int]) -> None:
        """Row i continues old row parents[i]."""
        self._tokens[: len(parents)], self._lengths[: len(parents)] = self._tokens[parents], self._lengths[parents]

    def lengths(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """How many tokens some rows have been fed [rows]."""
        return self._lengths[rows]

    def of(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Those of some rows [rows, longest], NO_TARGET in front of shorter ones."""
        lengths = self._lengths[rows, None]
        places = lengths - lengths.max() + np.arange(lengths.max())
        return np.where(places < 0, NO_TARGET, self._tokens[rows[:, None], np.maximum(places, 0)])
