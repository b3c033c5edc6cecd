"""The running batch on a device: its cache is allocated once, and every step reads and writes it in place.

    begin_step   one small copy to the device (tokens, positions, source lengths), then the decoder graph is started
    end_step     one small copy back: the candidates
    join, take   a run of engine/cuda/graphs/move.onnx for each block of the cache that must be copied

A step takes the first n rows of every block, n being the number of live rows rounded up to a bucket. The rows that fill
up a bucket put token 0 at position 0, where the next sentence in that row begins anyway, and their last source token
where it already stands.
"""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import onnxruntime as ort

from engine.cuda.blocks import TensorBlock, allocate_blocks
from engine.cuda.encoder import CudaSource
from engine.cuda.output import CudaOutput
from engine.cuda.runtime import Block, DeviceRuntime
from engine.cuda.step import CudaStep
from engine.decoder import Ask, Found, TokenIds
from engine.logits.whole_rows import check_offered, mark_not_finite
from models.package.graphs import GraphsSpec

LENGTH_STEP = 32
"""Copied lengths are multiples of this: few shapes, so the arena of the copies does not grow."""


class CudaCache:
    """Rows 0..live-1 of a running batch. Used by one thread, which captured CUDA graphs belong to."""

    def __init__(
        self,
        runtime: DeviceRuntime,
        session: ort.InferenceSession,
        spec: GraphsSpec,
        rows: int,
        source_capacity: int,
        target_capacity: int,
        output: CudaOutput | None,
    ) -> None:
        """`output`: with a shortlist."""
        self._runtime, self._spec, self._target_capacity, self._output = runtime, spec, target_capacity, output
        self._blocks = allocate_blocks(
            runtime, spec, rows, source_capacity, target_capacity, 0 if output is None else output.places
        )
        self._step = CudaStep(runtime, session, spec, self._blocks, output)
        self._positions, self._source_last = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        self._sentences = np.zeros(rows, np.int64)
        """Which sentence's source a row holds, live or not, counted from 1. 0: none."""
        self._joined = 0
        self._live = 0
        self._joining: list[tuple[int, CudaSource]] = []
        """Rows whose sources are not in the cache yet: those that were encoded together are copied together."""
        self._warm = False

    def close(self) -> None:
        """Drops what is bound to the decoder's session, and memory. It may not be used afterwards."""
        self._joining.clear()
        del self._step, self._blocks

    @property
    def live(self) -> int:
        """How many rows are in use."""
        return self._live

    def join(self, source: CudaSource) -> int:
        """Starts a row for a source, at position 0."""
        if not self._warm:
            self._step.warm_up()
            self._warm = True
        row = self._live
        self._joining.append((row, source))
        self._positions[row] = 0
        self._source_last[row] = source.length - 1
        self._joined += 1
        self._sentences[row] = self._joined
        self._live += 1
        return row

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        """Starts a step that feeds one token to each live row and finds what is asked of each."""
        check_offered(ask, self._spec)
        positions = self._positions[: self._live]
        if (needed := int(positions.max()) + 1) > self._target_capacity:
            raise ValueError(f"a row needs {needed} positions; the cache was opened for {self._target_capacity}")
        self._copy_joining()
        self._step.begin(token_ids, positions, self._source_last, ask)

    def end_step(self) -> Found:
        """Waits for the step that was begun. Every row has advanced by one position."""
        found = self._step.end(self._source_last)
        self._runtime.outbox.empty()
        self._positions[: self._live] += 1
        mark_not_finite(found)
        return found

    def take(self, parents: Sequence[int]) -> int:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards. Returns the bytes copied."""
        self._copy_joining()
        rows = [row for row, parent in enumerate(parents) if row != parent]
        if rows:
            self._step.forget()
        copied = 0
        # The beams of a sentence have its source already.
        strangers = [row for row in rows if self._sentences[row] != self._sentences[parents[row]]]
        for tensors in self._blocks.tensors:
            moved = rows if tensors.first.owner == "hypothesis" else strangers
            sources = [parents[row] for row in moved]
            copied += self._copy(tensors.block, sources, moved, self._length(tensors, sources))
            if tensors.last is not None:
                copied += self._copy(tensors.last, sources, moved, 1)
        if self._blocks.allowed is not None:
            sources = [parents[row] for row in strangers]
            copied += self._copy(self._blocks.allowed, sources, strangers, self._blocks.allowed.places)
        sources = [parents[row] for row in rows]
        for kept in (self._positions, self._source_last, self._sentences):
            kept[rows] = kept[sources]
        self._live = len(parents)
        return copied

    def _length(self, tensors: TensorBlock, rows: Sequence[int]) -> int:
        """Most places that one of these rows has filled."""
        if tensors.first.grows == "target":
            return int(self._positions[rows].max(initial=0))
        return int(self._source_last[rows].max(initial=-1)) + 1 if tensors.first.grows == "source" else 1

    def _copy(self, block: Block, sources: Sequence[int], rows: Sequence[int], length: int) -> int:
        """Makes rows hold the first `length` places of others. Returns the bytes of them.

        Nothing of it is read after it is written.
        """
        if not (rows and length):
            return 0
        length = min(-(-length // LENGTH_STEP) * LENGTH_STEP, block.places)
        self._runtime.move(block, block.starts(sources), block, block.starts(rows), length)
        return len(rows) * length * block.tensors * block.heads * block.slot_bytes

    def _copy_joining(self) -> None:
        """Copies the sources of new rows into the cache: one run for those that were encoded together."""
        for _, group in groupby(self._joining, key=lambda joining: id(joining[1].batch)):
            rows, sources = zip(*group, strict=True)
            move, blocks, batch = self._runtime.move, self._blocks, sources[0].batch
            sentences = [source.sentence for source in sources]
            for tensors, start in zip(blocks.tensors, batch.starts, strict=True):
                block = tensors.block
                if start is not None:
                    first = start.starts(sentences)
                    move(start, first, block, block.starts(rows), start.places)
                    if tensors.last is not None:
                        last = [at + source.length - 1 for at, source in zip(first, sources, strict=True)]
                        move(start, last, tensors.last, tensors.last.starts(rows), 1)
                elif tensors.zeros is not None:
                    move(tensors.zeros, [0] * len(rows), block, block.starts(rows), 1)
            if self._output is not None and batch.allowed is not None and blocks.allowed is not None:
                nothing, (allowed, _) = self._output.nothing, batch.allowed
                targets = blocks.allowed.starts(rows)
                move(nothing, [0] * len(rows), blocks.allowed, targets, nothing.places)
                move(allowed, allowed.starts(sentences), blocks.allowed, targets, allowed.places)
        self._joining.clear()
