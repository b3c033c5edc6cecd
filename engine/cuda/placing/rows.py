"""What the host knows of the rows of a running batch, wherever what they have decoded lies."""

import numpy as np
from numpy.typing import NDArray


class Rows:
    """Rows 0..live-1, the first of each array [rows]. The arrays stay where they are."""

    def __init__(self, rows: int) -> None:
        """No row is live; there is room for so many."""
        self.live = 0
        self.positions = np.zeros(rows, np.int32)
        """How many tokens each was fed before."""
        self.source_last = np.zeros(rows, np.int32)
        """The place of each row's last source token, also of rows that are not live any more."""
        self.sentences = np.zeros(rows, np.int64)
        """Which sentence's source a row holds, live or not, counted from 1. 0: none."""
        self._joined = 0

    def __len__(self) -> int:
        """How many there is room for."""
        return len(self.positions)

    def join(self, source_length: int) -> int:
        """Starts a row for a sentence of its own. Returns its index, which is the old `live`."""
        row = self.live
        self._joined += 1
        self.positions[row], self.source_last[row], self.sentences[row] = 0, source_length - 1, self._joined
        self.live += 1
        return row

    def advance(self) -> None:
        """Every live row was fed a token."""
        self.positions[: self.live] += 1

    def take(self, parents: NDArray[np.intp]) -> None:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards."""
        self.live = len(parents)
        for kept in (self.positions, self.source_last, self.sentences):
            kept[: self.live] = kept[parents]
