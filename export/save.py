"""Writes the graphs beside one file of weights: their own, in which every weight lies once, or the checkpoint's."""

import hashlib
from pathlib import Path
from typing import BinaryIO

import onnx_ir as ir

from export.graphs import Graphs
from export.stored_weights import StoredWeights, point
from models.package.graph_files import GraphFiles
from models.package.manifest import WEIGHTS
from models.package.signature import DECODER, ENCODER, OUTPUT

INLINE_BYTES = 1024
"""Smaller tensors (shapes, scalars, short biases) stay in the graph."""
PAGE_BYTES = 4096


def save(graphs: Graphs, folder: Path) -> GraphFiles:
    """Writes the files of the graphs into a folder. Returns them as a decoder opens them."""
    models = _by_file(graphs)
    with (folder / WEIGHTS).open("wb") as file:
        places: dict[bytes, int] = {}
        for model in models.values():
            _move_weights(model, file, places, folder)
    for name, model in models.items():
        ir.save(model, folder / name)
    return GraphFiles(folder, graphs.spec)


def save_beside(graphs: Graphs, folder: Path, weights: StoredWeights) -> GraphFiles:
    """Writes the graphs alone into a folder; their weights lie in the checkpoint's file, which must lie there too.

    Returns them as a decoder opens them. Raises CheckpointError where that file does not have a weight.
    """
    for name, model in _by_file(graphs).items():
        point(model, weights)
        ir.save(model, folder / name)
    return GraphFiles(folder, graphs.spec)


def _by_file(graphs: Graphs) -> dict[str, ir.Model]:
    models = {ENCODER: graphs.encoder, DECODER: graphs.decoder}
    return models if graphs.output is None else models | {OUTPUT: graphs.output}


def _move_weights(model: ir.Model, file: BinaryIO, places: dict[bytes, int], folder: Path) -> None:
    """Writes a graph's weights, but for those that are in the file already, and points the graph to them.

    places: SHA-256 of each tensor in the file, and its offset.
    """
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes >= INLINE_BYTES:
            data = tensor.tobytes()
            digest = hashlib.sha256(data).digest()
            if digest not in places:
                places[digest] = _append(file, data)
            value.const_value = ir.ExternalTensor(
                WEIGHTS,
                places[digest],
                len(data),
                tensor.dtype,
                shape=ir.Shape(tensor.shape.numpy()),
                name=value.name or "",
                base_dir=folder,
            )


def _append(file: BinaryIO, data: bytes) -> int:
    """Writes at the next page, which ONNX Runtime can map instead of copying it. Returns the offset."""
    file.write(b"\0" * (-file.tell() % PAGE_BYTES))
    offset = file.tell()
    file.write(data)
    return offset
