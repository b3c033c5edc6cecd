"""Rows that stay where they were written, as a device step wants it: it is told in which slots to look.

A slot is an index of every cache tensor of hypotheses, a source slot one of those of sources. Beams share the source
slot of their sentence. The rows that fill up a bucket write to a spare slot, and look at a spare source.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.cuda.blocks import CacheBlocks
from engine.cuda.placing.history import History, Indices
from engine.cuda.placing.rows import Rows
from engine.cuda.runtime import Block, DeviceRuntime, Tensor
from engine.devices.elements import INT32
from engine.devices.sizing import INDEX_BYTES, MOVED_BYTES


class Slots:
    """The tables of a history, on the host and on the device. See `Placement`.

    Both lanes of steps read the same: a step that was made ahead is done with them before a copy that is enqueued after
    it begins.
    """

    spare_rows = 1

    def __init__(self, runtime: DeviceRuntime, blocks: CacheBlocks, rows: Rows) -> None:
        self._runtime, self._blocks = runtime, blocks
        self.scalars: Mapping[str, NDArray[np.int32]] = {}
        size_bytes = INDEX_BYTES * History.table_numbers(len(rows), blocks.target_places)
        self._staged, self._buffer = runtime.transfers.staging(size_bytes), runtime.allocate(size_bytes)
        # What is sent is the history itself: it changes only when the step that it was sent for is done.
        self._history = History(rows, blocks.target_places, self._staged.view(np.int32), self._settle)
        self._copied = 0
        self._sent = False
        """The device knows the slots of all rows."""
        self.send()
        runtime.transfers.wait()

    def inputs(self, rows: int) -> dict[str, Tensor]:
        """The tables."""
        slots, source_slots, history = self._addresses
        return {
            "slots": (INT32, (rows,), slots),
            "source_slots": (INT32, (rows,), source_slots),
            "history": (INT32, self._history.history.shape, history),
        }

    def cached(self, rows: int) -> int:
        """All slots."""
        return self._blocks.rows + self.spare_rows

    def sources(self, rows: Sequence[int]) -> list[int]:
        """Source slots."""
        slots: list[int] = self._history.source_slots[list(rows)].tolist()
        return slots

    def join(self, row: int) -> None:
        """Gives it a slot, and its sentence a source slot."""
        self._sent = False
        self._history.join(row)

    def take(self, parents: Sequence[int]) -> int:
        """Changes the tables."""
        self._sent, self._copied = False, 0
        self._history.take(parents)
        return self._copied

    def send(self) -> None:
        """Sends the slots of rows, and the histories that have changed and those between them."""
        if self._sent:
            return
        slots, _, history = self._addresses
        of_rows, row_bytes, changed = history - slots, self._history.history.strides[0], self._history.changed()
        self._runtime.transfers.upload(self._staged[:of_rows], slots)
        if changed.stop:
            first, last = changed.start * row_bytes, changed.stop * row_bytes
            self._runtime.transfers.upload(self._staged[of_rows + first : of_rows + last], history + first)
        self._sent = True

    @property
    def _addresses(self) -> tuple[int, int, int]:
        """Of slots, source slots and history."""
        slots, rows = self._buffer.address, self._blocks.rows
        return slots, slots + INDEX_BYTES * rows, slots + INDEX_BYTES * 2 * rows

    def _settle(self, sources: Indices, targets: Indices, places: Indices) -> None:
        """Copies places of slots into others, some positions at once.

        Two slots may take over the same place of each other: all of a position is read before any of it is written.
        """
        for tensors in self._blocks.of_hypotheses:
            block = tensors.block
            place_bytes = block.tensors * block.heads * block.slot_bytes
            positions = max(1, MOVED_BYTES // (place_bytes * self._blocks.rows))
            for first in range(0, block.places, positions):
                part = np.flatnonzero((first <= places) & (places < first + positions))
                if len(part):
                    starts = (_starts(block, slots[part], places[part]) for slots in (sources, targets))
                    self._runtime.move_at_once(block, next(starts), block, next(starts), 1)
            self._copied += len(places) * place_bytes


def _starts(block: Block, slots: Indices, places: Indices) -> list[int]:
    """Where these places of slots are."""
    starts: list[int] = (slots.astype(np.int64) * block.row_slots + places).tolist()
    return starts
