"""The running batch on a device: its cache is allocated once, and every step reads and writes it in place.

    begin_step   one small copy to the device (tokens, positions, source lengths), then the decoder graph is started
    end_step     one small copy back: the candidates
    join         a run of engine/cuda/graphs/move.onnx for each block of what the standard encoder left, or one of
                 keep.onnx for all that the encoder for GPUs did
    take         the same for each block of the cache, where rows move with what they have: see `engine.cuda.placing`

A step takes the first n rows, n being the number of live rows rounded up to a bucket.
"""

from itertools import groupby
from pathlib import Path

import numpy as np
import onnxruntime as ort

from engine.cuda.blocks import allocate_blocks
from engine.cuda.encoding.encoded import CudaSource
from engine.cuda.output import CudaOutput
from engine.cuda.placing.moved_rows import MovedRows
from engine.cuda.placing.placement import Placing
from engine.cuda.placing.rows import Rows
from engine.cuda.placing.slots import Slots
from engine.cuda.runtime import DeviceRuntime
from engine.cuda.stepping.step import CudaStep
from engine.decoder import Ask, Found, Parents, TokenIds
from engine.logits.whole_rows import check_offered, mark_not_finite
from models.package.declared.graphs import GraphsSpec


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
        library: Path | None,
    ) -> None:
        """`output`: with a shortlist. `library`: of our own operators, if the session's graph is a device step."""
        placing: Placing = MovedRows if library is None else Slots
        self._runtime, self._spec, self._target_capacity = runtime, spec, target_capacity
        allowed = 0 if output is None else output.places
        room = rows, source_capacity, target_capacity, allowed, placing.spare_rows
        self._blocks = allocate_blocks(runtime, spec, *room)
        self._rows = Rows(rows)
        self._placement = placing(runtime, self._blocks, self._rows)
        self._step = CudaStep(runtime, session, spec, self._blocks, self._placement, output, library)
        self._joining: list[tuple[int, CudaSource]] = []
        """Rows whose sources are not in the cache yet: those that were encoded together are copied together."""
        self._warm = False

    def close(self) -> None:
        """Drops what is bound to the decoder's session, and memory. It may not be used afterwards."""
        self._joining.clear()
        del self._step, self._placement, self._blocks

    @property
    def live(self) -> int:
        """How many rows are in use."""
        return self._rows.live

    def join(self, source: CudaSource) -> int:
        """Starts a row for a source, at position 0."""
        if not self._warm:
            self._step.warm_up()
            self._warm = True
        self._step.forget()
        row = self._rows.join(source.length)
        self._placement.join(row)
        self._joining.append((row, source))
        return row

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        """Starts a step that feeds one token to each live row and finds what is asked of each."""
        check_offered(ask, self._spec)
        positions = self._rows.positions[: self.live]
        if (needed := int(positions.max()) + 1) > self._target_capacity:
            raise ValueError(f"a row needs {needed} positions; the cache was opened for {self._target_capacity}")
        self._copy_joining()
        self._step.begin(token_ids, positions, self._rows.source_last, ask)

    def end_step(self) -> Found:
        """Waits for the step that was begun. Every row has advanced by one position."""
        found = self._step.end(self._rows.source_last)
        self._rows.advance()
        mark_not_finite(found)
        return found

    def take(self, parents: Parents) -> int:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards. Returns the bytes copied."""
        self._copy_joining()
        taken = np.asarray(parents, np.intp)
        self._step.take(taken)
        copied = self._placement.take(taken)
        self._rows.take(taken)
        return copied

    def _copy_joining(self) -> None:
        """Copies the sources of new rows into the cache, together those that were encoded together."""
        for _, group in groupby(self._joining, key=lambda joining: id(joining[1].batch)):
            rows, sources = zip(*group, strict=True)
            places = self._placement.sources(rows)
            sources[0].batch.copy_to(self._blocks, [source.index for source in sources], places)
        self._joining.clear()
