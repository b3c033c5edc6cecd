"""Points graphs to the weights in a checkpoint's own file, so that a folder with both is a package.

ONNX lets the weights of a graph lie anywhere in any file of its folder, so they may stay in `model.safetensors`. What a
graph wants otherwise than the file has it is computed by nodes of which all inputs are constants: ONNX Runtime runs
those once, when it loads the graph, and drops them.

    joined      Concat of several tensors (the query, key and value projections of a layer)
    padded      Concat with a ConstantOfShape (the vocabulary, to whole blocks)
    widened     Cast of fp16 or bf16 numbers, which is exact
    sinusoids   from their frequencies (`models.positions.sinusoids`): checkpoints do not have them

A table that is only looked up in stays as it is in the file: the rows are widened, not the table. Operators of ours
take a table as it is, and multiply with it so.
docs/decisions/0013-a-checkpoint-folder-can-be-a-package.md has what was measured.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.tape import Tape

from export.native.nodes import DOMAIN
from export.weights.sinusoids import are_sinusoids, compute_sinusoids
from models.checkpoint import CheckpointError

STORED = "model.safetensors"
INLINE_BYTES = 1024
"""Smaller tensors stay in the graph; so do integers."""
HEAD = 64
"""So many numbers tell which tensors may begin at a place."""
DTYPES = {"F32": ir.DataType.FLOAT, "F16": ir.DataType.FLOAT16, "BF16": ir.DataType.BFLOAT16}
"""Of ONNX, by what safetensors calls them."""

TABLES = {(DOMAIN, "Embed", 2), (DOMAIN, "BestTokens", 2)}
"""Inputs that may be fp16."""

LOOK = "screened."
"""How the constants of `export.tracing.screened` begin: a few numbers for each token, which stay in the graph."""

Numbers = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor of the file, flat."""

    tensor: ir.ExternalTensor
    numbers: Numbers

    def begins(self, numbers: Numbers) -> bool:
        """Bit for bit: 0 is not -0."""
        return numbers[: len(self.numbers)].tobytes() == self.numbers.tobytes()


class StoredWeights:
    """The tensors of a safetensors file, found by what is in them."""

    def __init__(self, file: Path) -> None:
        """Raises CheckpointError where it is no such file, or has numbers of several types."""
        self.file = file
        self._by_head: dict[bytes, list[StoredTensor]] = {}
        dtypes = set()
        for tensor in _read(file):
            stored = StoredTensor(tensor, tensor.numpy().reshape(-1).astype(np.float32))
            self._by_head.setdefault(stored.numbers[:HEAD].tobytes(), []).append(stored)
            dtypes.add(tensor.dtype)
        if len(dtypes) != 1:
            raise CheckpointError(f"{file} has numbers of {len(dtypes)} types; in place, weights have one: use --out")
        self.dtype = dtypes.pop()

    def find(self, numbers: Numbers) -> tuple[list[StoredTensor], Numbers]:
        """The tensors that flat `numbers` are, one behind the other, and what is behind the last of them."""
        found: list[StoredTensor] = []
        while len(numbers):
            candidates = [s for s in self._by_head.get(numbers[:HEAD].tobytes(), []) if s.begins(numbers)]
            if not candidates:
                break
            found.append(max(candidates, key=lambda stored: len(stored.numbers)))
            numbers = numbers[len(found[-1].numbers) :]
        return found, numbers


def point(model: ir.Model, weights: StoredWeights) -> None:
    """Takes the weights out of a graph. Raises CheckpointError for one that the file does not have."""
    rewriting = _Rewriting(model.graph, weights)
    for value in list(model.graph.initializers.values()):
        tensor = value.const_value
        if (value.name or "").startswith(LOOK):
            continue
        if tensor is not None and tensor.dtype.is_floating_point() and tensor.nbytes >= INLINE_BYTES:
            rewriting.replace(value, tensor)
    rewriting.finish()


class _Rewriting:
    """The work on one graph."""

    def __init__(self, graph: ir.Graph, weights: StoredWeights) -> None:
        self._graph, self._weights = graph, weights
        self._tape = Tape()
        self._stored: dict[str, ir.Value] = {}

    def replace(self, value: ir.Value, tensor: ir.TensorProtocol) -> None:
        """Computes a weight from what is stored."""
        name, numbers = value.name or "", tensor.numpy().astype(np.float32)
        found, rest = self._weights.find(numbers.reshape(-1))
        parts = [self._part(stored, numbers.shape[1:]) for stored in found]
        if len(parts) == 1 and tensor.dtype != self._weights.dtype and numbers.ndim == 2:
            self._widen_rows(value, parts[0], tensor.dtype)
            if not len(rest):
                self._keep_table(value, parts[0])
        del self._graph.initializers[name]
        if not value.uses():
            return
        whole = self._joined(name, parts, rest, numbers.shape[1:]) if parts else self._sinusoids(name, numbers)
        if parts and tensor.dtype != self._weights.dtype:
            whole = self._tape.op("Cast", [whole], {"to": tensor.dtype.value})
        value.replace_all_uses_with(whole)
        if whole.producer() is not None:
            whole.name = name

    def finish(self) -> None:
        """Puts the new nodes and constants into the graph."""
        for constant in [*self._stored.values(), *self._tape.initializers]:
            self._graph.initializers[constant.name or ""] = constant
        self._graph.insert_before(self._graph[0], self._tape.nodes)

    def _part(self, stored: StoredTensor, row: tuple[int, ...]) -> ir.Value:
        """A tensor of the file, its rows of this shape."""
        lies = stored.tensor
        if lies.name not in self._stored:
            shape = ir.Shape((len(stored.numbers) // int(np.prod(row, dtype=int)), *row))
            file = self._weights.file
            tensor = ir.ExternalTensor(
                file.name, lies.offset, lies.length, lies.dtype, shape=shape, name=lies.name, base_dir=file.parent
            )
            self._stored[lies.name] = ir.Value(
                name=lies.name, shape=shape, type=ir.TensorType(lies.dtype), const_value=tensor
            )
        return self._stored[lies.name]

    def _widen_rows(self, table: ir.Value, stored: ir.Value, dtype: ir.DataType) -> None:
        """Lets every Gather take its rows from the file, and widens them."""
        for user, index in list(table.uses()):
            if user.op_type == "Gather" and index == 0:
                rows = user.outputs[0]
                cast = ir.node("Cast", [stored], {"to": dtype.value})
                rows.replace_all_uses_with(cast.outputs[0])
                cast.replace_input_with(0, rows)
                user.replace_input_with(0, stored)
                self._graph.insert_after(user, cast)

    def _keep_table(self, table: ir.Value, stored: ir.Value) -> None:
        """Lets operators that take fp16 have the table from the file."""
        for user, index in list(table.uses()):
            if self._weights.dtype == ir.DataType.FLOAT16 and (user.domain, user.op_type, index) in TABLES:
                user.replace_input_with(index, stored)

    def _joined(self, name: str, parts: list[ir.Value], rest: Numbers, row: tuple[int, ...]) -> ir.Value:
        """The parts, and what fills up the rest."""
        if len(rest):
            filler = rest[:1].astype(self._weights.dtype.numpy())
            if (rest != filler.astype(np.float32)).any():
                raise self._missing(name)
            rows = len(rest) // int(np.prod(row, dtype=int))
            shape = self._constant(f"{name}.padding", np.array([rows, *row]))
            parts = [*parts, self._tape.op("ConstantOfShape", [shape], {"value": ir.tensor(filler)})]
        return parts[0] if len(parts) == 1 else self._tape.op("Concat", parts, {"axis": 0})

    def _sinusoids(self, name: str, numbers: Numbers) -> ir.Value:
        if not are_sinusoids(numbers):
            raise self._missing(name)
        return compute_sinusoids(self._tape, name, *numbers.shape)

    def _constant(self, name: str, numbers: NDArray[Any]) -> ir.Value:
        return self._tape.initializer(ir.tensor(numbers, name=name))

    def _missing(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"{self._weights.file} does not have {name} as the graph needs it; make a package of its own with --out"
        )


def _read(file: Path) -> Iterator[ir.ExternalTensor]:
    """What the header of a safetensors file says: eight bytes with the length of a JSON object, and that object."""
    try:
        with file.open("rb") as content:
            (length,) = struct.unpack("<Q", content.read(8))
            header = json.loads(content.read(min(length, file.stat().st_size)))
    except (OSError, ValueError, struct.error) as error:
        raise CheckpointError(f"{file} is no safetensors file, which weights in place need: {error}") from error
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield ir.ExternalTensor(
                file.name,
                8 + length + begin,
                end - begin,
                DTYPES[entry["dtype"]],
                shape=ir.Shape(entry["shape"]),
                name=name,
                base_dir=file.parent,
            )
