"""Which slot each row of a running batch writes to, and in whose slots each has written before.

A slot has a place for each position. Reordering rows changes numbers, and moves nothing: a row keeps its slot, further
children of it write to other slots from their position on, and what they share with it stays where it is.

So a hypothesis that is gone may have left places that others still read. Its slot may be given to a hypothesis of the
same sentence, which writes behind them, but to no other sentence, which would begin at the front. That is why slots
belong to sentences: until no row of the sentence is left, or none reads them. Where that leaves too few, what the
living rows read is copied into their own slots. It takes beams that have become narrower, and a full batch.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.cuda.placing.rows import Rows

Indices = NDArray[np.integer]
Settle = Callable[[Indices, Indices, Indices], None]
"""Copies places of slots into the same places of others: from, to, places [copies]. All are read before any is written,
at least of each place."""


class _Living(NamedTuple):
    """Rows that go on, each in a slot of its own [rows]."""

    slots: NDArray[np.int32]
    positions: NDArray[np.int32]
    sentences: NDArray[np.int64]


class History:
    """The slots of all rows. There is a spare one, and a spare source slot, for the rows that fill up a step."""

    def __init__(self, rows: Rows, places: int, table: NDArray[np.int32], settle: Settle) -> None:
        """`table`: memory for the histories, see `table_numbers`."""
        self._rows, self._settle = rows, settle
        self.spare = spare = len(rows)
        self.of_rows = np.full((2, spare), spare, np.int32)
        """The next two."""
        self.slots, self.source_slots = self.of_rows
        """Of each row; of those that are not live, the spare one [rows]."""
        self.history = table.reshape(spare + 1, places)
        """In whose slot each position of a slot's hypothesis was written; from its own position on, itself."""
        self.history[:] = np.arange(spare + 1)[:, None]
        self._owners = np.zeros(spare, np.int64)
        """The sentence to which each slot belongs, or did. 0: none."""
        self._free_slots = list(range(spare))[::-1]
        """Of no sentence that has a row, the next one last, as long as no row was taken since they were looked for."""
        self._places = np.arange(places)
        self._changed = np.ones(spare + 1, np.bool_)

    @staticmethod
    def table_numbers(rows: int, places: int) -> int:
        """How many the table has: histories [rows + 1, places]."""
        return (rows + 1) * places

    def join(self, row: int) -> None:
        """Gives a slot and a source slot to a row that was started, the last of the live ones."""
        if not self._free_slots:
            living = _Living(self.slots[:row], self._rows.positions[:row], self._rows.sentences[:row])
            used = np.zeros(self.spare, np.bool_)
            used[living.slots] = True
            self._free_slots = self._free(1, living, used)[::-1].tolist()
        slot = self._free_slots.pop()
        self.slots[row], self._owners[slot] = slot, self._rows.sentences[row]
        if (self.history[slot] != slot).any():
            self.history[slot] = slot
            self._changed[slot] = True
        taken = np.zeros(self.spare, np.bool_)
        taken[self.source_slots[:row]] = True
        self.source_slots[row] = taken.argmin()

    def take(self, parents: NDArray[np.intp]) -> None:
        """Row i is about to continue row parents[i], as `Rows` has them. The first child of a row keeps its slot."""
        self._free_slots.clear()
        chosen, children = parents, np.arange(len(parents))
        first = np.empty(self._rows.live, np.intp)
        first[chosen[::-1]] = children[::-1]
        stays = first[chosen] == children
        slots = self.slots[chosen]
        if not stays.all():
            positions, sentences = self._rows.positions[chosen], self._rows.sentences[chosen]
            living = _Living(slots[stays], positions[stays], sentences[stays])
            later = ~stays
            old, slots[later] = slots[later], self._given(sentences[later], living)
            self._branch(old, slots[later], positions[later])
        self.slots[: len(chosen)] = slots
        self.source_slots[: len(chosen)] = self.source_slots[chosen]
        self.slots[len(chosen) :] = self.source_slots[len(chosen) :] = self.spare

    def changed(self) -> slice:
        """The slots whose history has changed since it was last asked, and some between them."""
        changed = np.flatnonzero(self._changed)
        self._changed[:] = False
        return slice(int(changed[0]), int(changed[-1]) + 1) if len(changed) else slice(0, 0)

    def may_change(self, rows: int) -> None:
        """A device that makes steps ahead may change the histories of the last so many rows: send them next time."""
        live = self._rows.live
        self._changed[self.slots[live - rows : live]] = True

    def _branch(self, old: NDArray[np.int32], new: NDArray[np.int32], positions: NDArray[np.int32]) -> None:
        """Gives hypotheses in new slots the history of others, up to their positions.

        Behind them the new slots have themselves: as much as this was there before, for no further place of the slots.
        """
        filled = slice(int(positions.max()))
        history = self.history[:, filled]
        history[new] = np.where(self._places[filled] < positions[:, None], history[old], new[:, None])
        self._changed[new] = True

    def _given(self, sentences: NDArray[np.int64], living: _Living) -> NDArray[np.int32]:
        """A slot for a further row of each of these sentences: one of the sentence's own that no row has, or a free."""
        used = np.zeros(self.spare, np.bool_)
        used[living.slots] = True
        unused = np.flatnonzero(~used)
        unused = unused[np.argsort(self._owners[unused], kind="stable")]
        order = np.argsort(sentences, kind="stable")
        wanted, owners = sentences[order], self._owners[unused]
        # The n-th row of a sentence gets the n-th of its slots, if it has so many.
        at = np.searchsorted(owners, wanted) + np.arange(len(wanted)) - np.searchsorted(wanted, wanted)
        own = at < np.searchsorted(owners, wanted, "right")
        slots = np.empty(len(wanted), np.int32)
        slots[order[own]] = unused[at[own]]
        used[unused[at[own]]] = True
        others = order[~own]
        if len(others):
            slots[others] = free = self._free(len(others), living, used)[: len(others)]
            self._owners[free], self.history[free] = sentences[others], free[:, None]
        return slots

    def _free(self, count: int, living: _Living, used: NDArray[np.bool_]) -> Indices:
        """Slots whose places nobody reads, so many or more. `used`: the others that are not to be given [slots]."""
        free = self._without_owner(living)
        for make_room in (self._release, self._gather):
            if len(free) < count:
                make_room(living, used)
                free = self._without_owner(living)
        return free

    def _without_owner(self, living: _Living) -> Indices:
        """Slots whose sentence has no row that is living. Those of no sentence are among them."""
        return np.flatnonzero(~np.isin(self._owners, living.sentences))

    def _release(self, living: _Living, used: NDArray[np.bool_]) -> None:
        """Takes from sentences the slots that none of their rows reads."""
        read = self.history[living.slots][self._places < living.positions[:, None]]
        kept = np.append(used, True)
        kept[read] = True
        self._owners[~kept[:-1]] = 0

    def _gather(self, living: _Living, used: NDArray[np.bool_]) -> None:
        """Copies what rows read into their own slots, and takes from sentences all that no row has."""
        history = self.history[living.slots]
        rows, places = np.nonzero(history != living.slots[:, None])
        if len(rows):
            self._settle(history[rows, places], living.slots[rows], places)
        self.history[living.slots] = living.slots[:, None]
        self._changed[living.slots] = True
        self._owners[~used] = 0
