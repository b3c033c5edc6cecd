"""What the rows of a running batch have been fed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.processors.processor import NO_TARGET

STEPS = 64
"""That there is room for at first."""


class FedTokens:
    """Of rows 0..live-1, in the order of a cache's. What all of them are fed at a step stands in one column."""

    def __init__(self, rows: int) -> None:
        """Room for so many."""
        self._tokens = np.full((rows, STEPS), NO_TARGET)
        self._lengths = np.zeros(rows, np.intp)
        self._step = 0
        """The column that is filled next: nothing stands in it, or behind it."""

    def start(self, row: int) -> None:
        """It has been fed nothing yet."""
        self._tokens[row, : self._step] = NO_TARGET
        self._lengths[row] = 0

    def feed(self, token_ids: NDArray[np.int64]) -> None:
        """One token more of each live row [live]."""
        live = slice(len(token_ids))
        if self._step == self._tokens.shape[1]:
            self._make_room(int(self._lengths[live].max(initial=0)))
        self._tokens[live, self._step] = token_ids
        self._step += 1
        self._lengths[live] += 1

    def take(self, parents: Sequence[int]) -> None:
        """Row i continues old row parents[i]."""
        self._tokens[: len(parents)], self._lengths[: len(parents)] = self._tokens[parents], self._lengths[parents]

    def lengths(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """How many tokens some rows have been fed [rows]."""
        return self._lengths[rows]

    def of(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Those of some rows [rows, longest], NO_TARGET in front of shorter ones."""
        return self._tokens[rows, self._step - int(self._lengths[rows].max()) : self._step]

    def _make_room(self, longest: int) -> None:
        """Forgets the columns before the last `longest`. They fill half of the room afterwards, or less."""
        kept = self._tokens[:, self._step - longest : self._step]
        self._tokens = np.full((len(kept), max(STEPS, 2 * longest)), NO_TARGET)
        self._tokens[:, :longest], self._step = kept, longest
