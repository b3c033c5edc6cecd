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

from engine.cuda.blocks import allocate_blocks
from engine.cuda.encoder import CudaSource
from engine.cuda.output import CudaOutput
from engine.cuda.runtime import Block, DeviceRuntime, Precision
from engine.cuda.step import CudaStep
from engine.decoder import Ask, Found
from models.config import ModelConfig

LENGTH_STEP = 32
"""Copied lengths are multiples of this: few shapes, so the arena of the copies does not grow."""


class CudaCache:
    """Rows 0..live-1 of a running batch. Used by one thread, which captured CUDA graphs belong to."""

    def __init__(
        self,
        runtime: DeviceRuntime,
        session: ort.InferenceSession,
        config: ModelConfig,
        precision: Precision,
        rows: int,
        source_capacity: int,
        target_capacity: int,
        output: CudaOutput | None,
    ) -> None:
        """`output`: with a shortlist."""
        self._runtime, self._target_capacity, self._output = runtime, target_capacity, output
        self._blocks = allocate_blocks(
            runtime, config, precision, rows, source_capacity, target_capacity, 0 if output is None else output.places
        )
        self._step = CudaStep(runtime, session, config, precision, self._blocks, output)
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

    def begin_step(self, token_ids: Sequence[int], ask: Ask) -> None:
        """Starts a step that feeds one token to each live row and finds what is asked of each."""
        positions = self._positions[: self._live]
        if (needed := int(positions.max()) + 1) > self._target_capacity:
            raise ValueError(f"a row needs {needed} positions; the cache was opened for {self._target_capacity}")
        self._copy_joining()
        self._step.begin(token_ids, positions, self._source_last, ask.best)

    def end_step(self) -> Found:
        """Waits for the step that was begun. Every row has advanced by one position."""
        candidates = self._step.end()
        self._runtime.outbox.empty()
        self._positions[: self._live] += 1
        return candidates

    def take(self, parents: Sequence[int]) -> int:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards. Returns the bytes copied."""
        self._copy_joining()
        rows = [row for row, parent in enumerate(parents) if row != parent]
        if rows:
            self._step.forget()
        sources, blocks = [parents[row] for row in rows], self._blocks
        copied = self._copy(blocks.self_attention, sources, rows, int(self._positions[sources].max(initial=0)))
        copied += self._copy(blocks.state, sources, rows, blocks.state.places)
        self._positions[rows] = self._positions[sources]
        # The beams of a sentence have its source already.
        strangers = [row for row in rows if self._sentences[row] != self._sentences[parents[row]]]
        sources = [parents[row] for row in strangers]
        length = int(self._source_last[sources].max(initial=-1)) + 1
        copied += self._copy(blocks.cross_attention, sources, strangers, length)
        copied += self._copy(blocks.last, sources, strangers, blocks.last.places)
        if blocks.allowed is not None:
            copied += self._copy(blocks.allowed, sources, strangers, blocks.allowed.places)
        self._source_last[strangers] = self._source_last[sources]
        self._sentences[strangers] = self._sentences[sources]
        self._live = len(parents)
        return copied

    def _copy(self, block: Block, sources: Sequence[int], rows: Sequence[int], length: int) -> int:
        """Makes rows hold the first `length` places of others. Returns the bytes of them.

        Nothing of it is read after it is written.
        """
        if not (rows and length and block.tensors):
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
            starts = batch.cross.starts(sentences)
            last = [start + source.length - 1 for start, source in zip(starts, sources, strict=True)]
            cross = blocks.cross_attention
            move(batch.cross, starts, cross, cross.starts(rows), batch.cross.places)
            move(batch.cross, last, blocks.last, blocks.last.starts(rows), 1)
            if blocks.state.tensors:
                move(blocks.no_state, [0] * len(rows), blocks.state, blocks.state.starts(rows), 1)
            if self._output is not None and batch.allowed is not None and blocks.allowed is not None:
                nothing, (allowed, _) = self._output.nothing, batch.allowed
                targets = blocks.allowed.starts(rows)
                move(nothing, [0] * len(rows), blocks.allowed, targets, nothing.places)
                move(allowed, allowed.starts(sentences), blocks.allowed, targets, allowed.places)
        self._joining.clear()
