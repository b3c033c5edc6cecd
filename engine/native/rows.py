"""Where each row of a running batch is kept: in a slot for what it has decoded, and in its sentence's for the source.

Reordering rows permutes numbers. Nothing is copied but the slot of a hypothesis that has a second child. Beams share
the source slot of their sentence.
"""

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Found, Parents
from kernels.library import Buffers, Library
from kernels.rows import RowTable, Taken
from kernels.steps import Following, Recording

ONE = np.ones(1, np.int32)
"""An array, which NumPy adds in a third of the time that it takes for a number."""
NO_BUFFERS = Buffers(())


class Rows:
    """What a step reads of its rows: the first `live` of each array [rows]. The arrays stay where they are."""

    def __init__(self, rows: int, library: Library) -> None:
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
        self._table = RowTable(library, self.positions, self.slots, self.source_slots, self.source_lengths)

    def join(self, source_length: int) -> int:
        """Starts a row for a source of its own. Returns its index, which is the old `live`. Raises ValueError."""
        row = self.live
        if row == 0:
            self.furthest = 0
        if row == len(self.slots):
            raise ValueError(f"there are {row} rows; the cache was opened for {row}")
        used = {*self.source_slots[:row].tolist()}
        self.source_slots[row] = next(slot for slot in range(row + 1) if slot not in used)
        self.source_lengths[row] = source_length
        self.positions[row] = 0
        self.live += 1
        return row

    def following(self, recording: Recording, best: Found) -> Following:
        """What makes steps as the recorded one, which leaves there what it finds."""
        return Following(recording, self._table, self.ids, best.token_ids, best.log_probs)

    def hold(self) -> None:
        """The table knows of those that have joined."""
        self._table.hold(self.live)

    def advance(self) -> None:
        """Every live row was fed a token."""
        self.positions += ONE  # of rows that are not live, too: they begin anew
        self.furthest += 1

    def take(self, parents: Parents, buffers: Buffers = NO_BUFFERS) -> Taken:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards.

        The first child of a row keeps its slot; what another one has decoded is copied in all buffers.
        """
        taken = self._table.take(self.live, parents, buffers)
        self.live, self.furthest = len(parents), taken.furthest
        return taken

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
        return max(self.source_lengths[: self.live].tolist(), default=0)
