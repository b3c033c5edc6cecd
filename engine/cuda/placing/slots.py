"""Rows that stay where they were written, as a device step wants it: it is told in which slots to look.

A slot is an index of every cache tensor of hypotheses, a source slot one of those of sources. Beams share the source
slot of their sentence. The rows that fill up a bucket write to a spare slot, and look at a spare source.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.cuda.blocks import CacheBlocks
from engine.cuda.graphs import GO_ON
from engine.cuda.lanes.feed import NUMBERS, Feed
from engine.cuda.lanes.lane import Lane
from engine.cuda.lanes.layout import Layout
from engine.cuda.placing.history import History, Indices
from engine.cuda.placing.rows import Rows
from engine.cuda.runtime import Block, DeviceRuntime, Tensor
from engine.decoder import Outlook
from engine.devices.sizing import ID_BYTES, INDEX_BYTES, MOVED_BYTES
from models.package.declared.elements import DOUBLE, FLOAT, INT32, INT64
from models.package.signature import NO_TOKEN

NEVER = 32
"""Tokens that the device can be told no hypothesis goes on with."""


class Slots:
    """The tables of a history, on the host and on the device. See `Placement`.

    Both lanes of steps read the same histories: a step is done with them before what is enqueued after it changes them,
    be it a copy or the device's own choice of how the rows go on.
    """

    spare_rows = 1
    moves = False
    going_on = GO_ON

    def __init__(self, runtime: DeviceRuntime, blocks: CacheBlocks, rows: Rows) -> None:
        self._runtime, self._blocks, self._rows = runtime, blocks, rows
        self.scalars: Mapping[str, NDArray[np.int32]] = {}
        size_bytes = INDEX_BYTES * History.table_numbers(len(rows), blocks.target_places)
        self._staged, self._buffer = runtime.transfers.staging(size_bytes), runtime.allocate(size_bytes)
        # What is sent is the history itself: it changes only when the step that it was sent for is done.
        self._history = History(rows, blocks.target_places, self._staged.view(np.int32), self._settle)
        self.slots = self._history.of_rows
        self._copied = 0
        self._never = runtime.allocate(NEVER * ID_BYTES)
        self._staged_never = runtime.transfers.staging(NEVER * ID_BYTES)
        self._staged_never.view(np.int64)[:] = NO_TOKEN
        runtime.transfers.upload(self._staged_never, self._never.address)
        self.send(None)
        runtime.transfers.wait()

    def inputs(self, feed: Feed, rows: int) -> dict[str, Tensor]:
        """The tables."""
        return {
            "slots": (INT32, (rows,), feed.slots),
            "source_slots": (INT32, (rows,), feed.source_slots),
            "history": self._table,
        }

    def way(self, source: Lane, target: Lane, rows: int, k: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """See engine/cuda/graphs/go_on.onnxtxt."""
        numbers = (NUMBERS, len(self.slots[0]))
        inputs = {
            "candidates": (INT64, (rows, k), source.candidates),
            "log_probs": (FLOAT, (rows, k), source.log_probs(rows, k)),
            "never": (INT64, (NEVER,), self._never.address),
            "costs": (DOUBLE, (rows,), source.feed.costs),
            "numbers": (INT32, numbers, source.feed.numbers),
            "history": self._table,
        }
        outputs = {
            "next_ids": (INT64, (rows,), target.feed.ids),
            "next_costs": (DOUBLE, (rows,), target.feed.costs),
            "next_numbers": (INT32, numbers, target.feed.numbers),
            "next_history": self._table,
        }
        return inputs, outputs

    def foresees(self, outlook: Outlook, layout: Layout) -> bool:
        """If the rows of a search are of one sentence, whose slots it may write to, and few tokens are never next."""
        sentences = self._rows.sentences[: len(layout.first)]
        return len(outlook.never) <= NEVER and bool((sentences == sentences[layout.first]).all())

    def cached(self, rows: int) -> int:
        """All slots."""
        return self._blocks.rows + self.spare_rows

    def sources(self, rows: Sequence[int]) -> list[int]:
        """Source slots."""
        slots: list[int] = self._history.source_slots[list(rows)].tolist()
        return slots

    def join(self, row: int) -> None:
        """Gives it a slot, and its sentence a source slot."""
        self._history.join(row)

    def take(self, parents: NDArray[np.intp]) -> int:
        """Changes the tables."""
        self._copied = 0
        self._history.take(parents)
        return self._copied

    def send(self, outlook: Outlook | None) -> None:
        """Sends the histories that have changed and those between them, and what the device may have changed."""
        transfers, changed = self._runtime.transfers, self._history.changed()
        if changed.stop:
            first, last = (slot * self._history.history.strides[0] for slot in (changed.start, changed.stop))
            transfers.upload(self._staged[first:last], self._buffer.address + first)
        if outlook is None or not len(outlook.widths):
            return
        self._history.may_change(int(outlook.widths.sum()))
        never = self._staged_never.view(np.int64)
        if (never[: len(outlook.never)] != outlook.never).any() or (never[len(outlook.never) :] != NO_TOKEN).any():
            never[:] = NO_TOKEN
            never[: len(outlook.never)] = outlook.never
            transfers.upload(self._staged_never, self._never.address)

    @property
    def _table(self) -> Tensor:
        return INT32, self._history.history.shape, self._buffer.address

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
