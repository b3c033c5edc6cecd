"""Where each row of a running batch is kept: in a slot for what it has decoded, and in its sentence's for the source.

Reordering rows permutes numbers. Nothing is copied but the slot of a hypothesis that has a second child. Beams share
the source slot of their sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Copies:
    """Slots whose first positions go into others. No slot is both read and written."""

    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    positions: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.sources)


ONE = np.ones(1, np.int32)
"""An array, which NumPy adds in a third of the time that it takes for a number."""


def _none() -> NDArray[np.int32]:
    return np.zeros(0, np.int32)


NO_COPIES = Copies(_none(), _none(), _none())


class Rows:
    """What a step reads of its rows: the first `live` of each array [rows]. The arrays stay where they are."""

    def __init__(self, rows: int) -> None:
        """No row is live; there is room for so many."""
        self.live = 0
        self.ids = np.zeros(rows, np.int64)
        """The token that each is fed."""
        self.positions = np.zeros(rows, np.int32)
        """How many tokens each was fed before."""
        self.slots = np.arange(rows, dtype=np.int32)
        """Where each keeps what it has decoded. Those behind the live rows' are free."""
        self.source_slots = np.zeros(rows, np.int32)
        self.source_lengths = np.zeros(rows, np.int32)
        self.furthest = 0
        """The most tokens that any live row was fed before."""
        self._order = np.arange(rows)

    def join(self, source_length: int) -> int:
        """Starts a row for a source of its own. Returns its index, which is the old `live`."""
        row = self.live
        if row == 0:
            self.furthest = 0
        if row == len(self._order):
            raise ValueError(f"there are {row} rows; the cache was opened for {row}")
        used = np.zeros(len(self._order), np.bool_)
        used[self.source_slots[:row]] = True
        self.source_slots[row] = used.argmin()
        self.source_lengths[row] = source_length
        self.positions[row] = 0
        self.live += 1
        return row

    def advance(self) -> None:
        """Every live row was fed a token."""
        self.positions += ONE  # of rows that are not live, too: they begin anew
        self.furthest += 1

    def take(self, parents: Sequence[int] | NDArray[np.integer]) -> Copies:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards. Returns what is to be copied.

        The first child of a row keeps its slot.
        """
        chosen = np.asarray(parents, np.intp)
        rows, order = len(chosen), self._order[: len(chosen)]
        if rows == self.live and (chosen == order).all():
            return NO_COPIES
        slots, free = self.slots[chosen], np.ones(len(self.slots), np.bool_)
        first = np.empty(self.live, np.intp)
        first[chosen[::-1]] = order[::-1]
        later = np.flatnonzero(first[chosen] != order)
        free[slots] = False
        others = np.flatnonzero(free).astype(np.int32)
        copies = Copies(slots[later], others[: len(later)], self.positions[chosen[later]])
        slots[later] = copies.targets
        for array in (self.positions, self.source_slots, self.source_lengths):
            array[:rows] = array[chosen]
        self.slots[:rows], self.slots[rows:] = slots, others[len(later) :]
        self.live = rows
        self.furthest = int(self.positions[:rows].max(initial=0))
        return copies

    @property
    def live_slots(self) -> NDArray[np.intp]:
        """Of the hypotheses."""
        return self.slots[: self.live].astype(np.intp)

    @property
    def live_source_slots(self) -> NDArray[np.intp]:
        """Each once."""
        return np.unique(self.source_slots[: self.live]).astype(np.intp)

    @property
    def longest_source(self) -> int:
        """Tokens of it."""
        return int(self.source_lengths[: self.live].max(initial=0))
