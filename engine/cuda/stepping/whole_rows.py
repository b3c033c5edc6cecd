"""What a step gives besides the best tokens, on a device: logits of whole rows, and queries to the source."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from engine.cuda.blocks import CacheBlocks
from engine.cuda.placing.placement import Placement
from engine.cuda.runtime import NUMBER_TYPES, DeviceRuntime, Tensor
from engine.decoder import Ask, Found
from engine.devices.buffers import Buffer
from engine.logits.whole_rows import answer, asks_logits, attend
from models.package.declared.graphs import GraphsSpec
from models.package.signature import NO_TOKEN


class WholeRows:
    """Memory for them, taken when they are first asked for, and the way back to the host."""

    def __init__(self, runtime: DeviceRuntime, spec: GraphsSpec, blocks: CacheBlocks, placement: Placement) -> None:
        self._runtime, self._spec, self._blocks, self._placement = runtime, spec, blocks, placement
        self._numbers = NUMBER_TYPES[spec.precision.activations]

    def outputs(self, rows: int) -> dict[str, Tensor]:
        """The outputs of a step of so many rows."""
        return {
            name: (self._numbers.element, self._shape(name, rows), buffer.address)
            for name, buffer in self._buffers.items()
        }

    def answer(self, ask: Ask, best: Found, source_last: NDArray[np.int32]) -> Found:
        """What was asked of a step that is done. `source_last`: of its rows."""
        logits = self._logits if asks_logits(ask) else None
        return answer(ask, best, logits, self._attention(source_last) if ask.attention else None)

    def _logits(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Of some rows [some, vocabulary]. -inf: not allowed."""
        assert self._spec.logits is not None
        logits = self._read(self._spec.logits.name, rows)[:, : self._spec.vocabulary.target_size]
        allowed = self._blocks.allowed
        if allowed is None:
            return logits
        raw = self._read_rows(allowed.address, allowed.row_slots * allowed.slot_bytes, rows)
        found = np.full_like(logits, -np.inf)
        for row, places in enumerate(raw.view(np.int64)):
            ids = places[places != NO_TOKEN]  # a place is a token here
            found[row, ids] = logits[row, ids]
        return found

    def _attention(self, source_last: NDArray[np.int32]) -> NDArray[np.float32]:
        query, rows = self._spec.cross_query, len(source_last)
        assert query is not None
        tensor, address, block = next(
            (tensor, address, tensors.block)
            for tensors in self._blocks.tensors
            for tensor, address in zip(tensors.tensors, tensors.block.tensor_addresses(), strict=True)
            if tensor.past == query.keys
        )
        sources = np.array(self._placement.sources(range(rows)))
        raw = self._read_rows(address, block.row_slots * block.slot_bytes, sources)
        keys = NUMBER_TYPES[tensor.precision].to_float(raw).reshape(tensor.shape(rows, block.places))
        return attend(self._read(query.name, np.arange(rows)), keys, source_last, query.scale)

    def _read(self, name: str, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Some rows of an output."""
        columns = self._shape(name, len(rows))[1]
        raw = self._read_rows(self._buffers[name].address, columns * self._numbers.size_bytes, rows)
        return self._numbers.to_float(raw.ravel()).reshape(len(rows), columns)

    def _read_rows(self, address: int, row_bytes: int, rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Some rows of so many bytes, and no others: neighbours cross together [rows, bytes]."""
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        parts = [self._runtime.read(address + int(run[0]) * row_bytes, len(run) * row_bytes) for run in runs]
        return np.concatenate(parts).reshape(len(rows), row_bytes)

    def _shape(self, name: str, rows: int) -> tuple[int, int]:
        logits = self._spec.logits
        if logits is None or name != logits.name:
            return rows, self._spec.query_numbers
        if self._blocks.allowed is None:
            return rows, logits.size
        return rows + 1, self._spec.vocabulary.target_size  # all rows of the output layer are given

    @cached_property
    def _buffers(self) -> dict[str, Buffer]:
        size, rows = self._numbers.size_bytes, self._blocks.rows
        outputs = [output.name for output in (self._spec.logits, self._spec.cross_query) if output is not None]
        return {name: self._runtime.allocate(int(np.prod(self._shape(name, rows))) * size) for name in outputs}
