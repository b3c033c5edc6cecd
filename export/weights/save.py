"""Writes the graphs beside one file of weights: their own, in which every weight lies once, or the checkpoint's."""

from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from export.tracing.graphs import EncoderGraphs, Graphs
from export.weights.sinusoids import leave_out_sinusoids
from export.weights.stored import StoredWeights, point
from models.package.graph_files import GraphFiles
from models.package.manifest import WEIGHTS

INLINE_BYTES = 1024
"""Smaller tensors (shapes, scalars, short biases) stay in the graph."""
PAGE_BYTES = 4096
COMPARED_BYTES = 1 << 20
"""So many at a time: what says which bytes are equal is as large as they are."""

Bytes = NDArray[np.uint8]


def save(graphs: Graphs | EncoderGraphs, folder: Path) -> GraphFiles:
    """Writes the files of the graphs into a folder. Returns them as a decoder opens them."""
    with (folder / WEIGHTS).open("wb") as file:
        weights = _WeightsFile(file)
        for model in graphs.models.values():
            leave_out_sinusoids(model)
            _move_weights(model, weights, folder)
    for name, model in graphs.models.items():
        ir.save(model, folder / name)
    return GraphFiles(folder, graphs.spec)


def save_beside(graphs: Graphs, folder: Path, weights: StoredWeights) -> GraphFiles:
    """Writes the graphs alone into a folder; their weights lie in the checkpoint's file, which must lie there too.

    Returns them as a decoder opens them. Raises CheckpointError where that file does not have a weight.
    """
    for name, model in graphs.models.items():
        point(model, weights)
        ir.save(model, folder / name)
    return GraphFiles(folder, graphs.spec, weights=weights.file.name)


class _WeightsFile:
    """Tensors, each once. One that is the beginning of another is where that is: the vocabulary without its padding."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._by_head: dict[bytes, list[tuple[int, Bytes]]] = {}
        """Offset and content of what was written, by its first INLINE_BYTES."""

    def put(self, data: Bytes) -> int:
        """Writes a tensor, unless it is there. Returns the offset."""
        alike = self._by_head.setdefault(data[:INLINE_BYTES].tobytes(), [])
        for offset, written in alike:
            if _equal(written[: len(data)], data):
                return offset
        # At the next page, which ONNX Runtime can map instead of copying it.
        self._file.write(b"\0" * (-self._file.tell() % PAGE_BYTES))
        offset = self._file.tell()
        self._file.write(data.data)
        alike.append((offset, data))
        return offset


def _equal(one: Bytes, other: Bytes) -> bool:
    if len(one) != len(other):
        return False
    parts = (slice(start, start + COMPARED_BYTES) for start in range(0, len(one), COMPARED_BYTES))
    return all(np.array_equal(one[part], other[part]) for part in parts)


def _move_weights(model: ir.Model, weights: _WeightsFile, folder: Path) -> None:
    """Writes a graph's weights, but for those that are in the file already, and points the graph to them."""
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes >= INLINE_BYTES:
            data = np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
            value.const_value = ir.ExternalTensor(
                WEIGHTS,
                weights.put(data),
                len(data),
                tensor.dtype,
                shape=ir.Shape(tensor.shape.numpy()),
                name=value.name or "",
                base_dir=folder,
            )
