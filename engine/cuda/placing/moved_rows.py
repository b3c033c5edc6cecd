"""Rows whose keys and values move with them, as the standard decoder graph wants it.

A step takes the first n rows of every block, n being the number of live rows rounded up to a bucket. The rows that fill
up a bucket put token 0 at position 0, where the next sentence in that row begins anyway, and their last source token
where it already stands.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.cuda.blocks import CacheBlocks, TensorBlock
from engine.cuda.graphs import AHEAD
from engine.cuda.lanes.feed import Feed
from engine.cuda.lanes.lane import Lane
from engine.cuda.lanes.layout import Layout
from engine.cuda.placing.rows import Rows
from engine.cuda.runtime import Block, DeviceRuntime, Tensor
from engine.decoder import Outlook
from models.package.declared.elements import INT32, INT64

LENGTH_STEP = 32
"""Copied lengths are multiples of this: few shapes, so the arena of the copies does not grow."""


class MovedRows:
    """Row i is kept at index i. See `Placement`."""

    spare_rows = 0
    moves = True
    going_on = AHEAD

    def __init__(self, runtime: DeviceRuntime, blocks: CacheBlocks, rows: Rows) -> None:
        self._runtime, self._blocks, self._rows = runtime, blocks, rows
        self.slots = np.zeros((2, len(rows)), np.int32)
        self._one = runtime.constant([1])
        # Constant, so that a captured graph can have them: how far a row attends is decided by its position, on the
        # device.
        totals = {"total": blocks.target_places, "source_total": blocks.source_places}
        self.scalars: Mapping[str, NDArray[np.int32]] = {n: np.array(total, np.int32) for n, total in totals.items()}

    def inputs(self, feed: Feed, rows: int) -> dict[str, Tensor]:
        """What the graph wants of each row's last source token."""
        return dict(place for block in self._blocks.tensors for place in block.bound_last(rows))

    def way(self, source: Lane, target: Lane, rows: int, k: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """See engine/cuda/graphs/ahead.onnxtxt."""
        best = self._runtime.constant(np.arange(rows) * k)
        inputs: dict[str, Tensor] = {
            "candidates": (INT64, (rows * k,), source.candidates),
            "best": (INT64, (rows,), best),
            "positions": (INT32, (rows,), source.feed.positions),
            "one": (INT32, (1,), self._one),  # the lower half of 64 bits
            "source_last": (INT32, (rows,), source.feed.source_last),
        }
        outputs: dict[str, Tensor] = {
            "next_ids": (INT64, (rows,), target.feed.ids),
            "next_positions": (INT32, (rows,), target.feed.positions),
            "next_source_last": (INT32, (rows,), target.feed.source_last),
        }
        return inputs, outputs

    def foresees(self, outlook: Outlook, layout: Layout) -> bool:
        """Beams would have to be moved."""
        return not len(outlook.widths)

    def cached(self, rows: int) -> int:
        """The first rows."""
        return rows

    def sources(self, rows: Sequence[int]) -> list[int]:
        """Themselves."""
        return list(rows)

    def join(self, row: int) -> None:
        """Nothing to do."""

    def take(self, parents: NDArray[np.intp]) -> int:
        """Copies what rows take over from others."""
        return self._take(parents.tolist())

    def send(self, outlook: Outlook | None) -> None:
        """Nothing changes."""

    def _take(self, parents: list[int]) -> int:
        rows = [row for row, parent in enumerate(parents) if row != parent]
        sentences = self._rows.sentences
        # The beams of a sentence have its source already.
        strangers = [row for row in rows if sentences[row] != sentences[parents[row]]]
        copied = 0
        for tensors in self._blocks.tensors:
            moved = rows if tensors.first.owner == "hypothesis" else strangers
            sources = [parents[row] for row in moved]
            copied += self._copy(tensors.block, sources, moved, self._length(tensors, sources))
            if tensors.last is not None:
                copied += self._copy(tensors.last, sources, moved, 1)
        if self._blocks.allowed is not None:
            sources = [parents[row] for row in strangers]
            copied += self._copy(self._blocks.allowed, sources, strangers, self._blocks.allowed.places)
        return copied

    def _length(self, tensors: TensorBlock, rows: Sequence[int]) -> int:
        """Most places that one of these rows has filled."""
        if tensors.first.grows == "target":
            return int(self._rows.positions[rows].max(initial=0))
        return int(self._rows.source_last[rows].max(initial=-1)) + 1 if tensors.first.grows == "source" else 1

    def _copy(self, block: Block, sources: Sequence[int], rows: Sequence[int], length: int) -> int:
        """Makes rows hold the first `length` places of others. Returns the bytes of them.

        Nothing of it is read after it is written.
        """
        if not (rows and length):
            return 0
        length = min(-(-length // LENGTH_STEP) * LENGTH_STEP, block.places)
        self._runtime.move(block, block.starts(sources), block, block.starts(rows), length)
        return len(rows) * length * block.tensors * block.heads * block.slot_bytes
