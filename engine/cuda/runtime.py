"""What all graphs on a device share: one stream, one arena for what outlives a run, and the graph that moves rows."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import ArrayLike, NDArray

from engine.cuda.graphs import MOVE
from engine.devices.buffers import Buffer, Outbox, allocate
from engine.devices.session import Device, open_session, run_options
from engine.devices.sizing import MOVED_BYTES
from engine.devices.transfers import open_transfers
from models.package.declared.elements import BFLOAT16, FLOAT, FLOAT16, INT64
from models.package.declared.precision import Precision
from models.package.graph_files import Graph

WORD_BYTES = 8
"""The graph that moves rows sees everything as int64: see engine/cuda/graphs/move.onnxtxt."""
OUTBOX_BYTES = 1 << 18
"""Room for what is sent between two steps. If it does not do, the host waits for the device."""
DESK_BYTES = 1 << 18
"""Staging memory of copies that the host waits for, which are rare."""

Tensor = tuple[int, tuple[int, ...], int]
"""ONNX element type, shape, address on the device."""


@dataclass(frozen=True, slots=True)
class NumberType:
    """How numbers lie in memory."""

    element: int
    """onnx.TensorProto."""
    size_bytes: int

    def to_float(self, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Bytes as numbers. bf16, which numpy has not, is the upper half of fp32."""
        if self.element == BFLOAT16:
            return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return raw.view(np.float16 if self.element == FLOAT16 else np.float32).astype(np.float32)


NUMBER_TYPES: dict[Precision, NumberType] = {
    "fp32": NumberType(FLOAT, 4),
    "fp16": NumberType(FLOAT16, 2),
    "bf16": NumberType(BFLOAT16, 2),
}


@dataclass(frozen=True, slots=True)
class Block:
    """Tensors that are alike, of several rows [tensors, rows, heads, places, slot].

    Keys and values have a place for each token, and slots of head_dim numbers. A state has one head and one place.
    """

    address: int
    tensors: int
    rows: int
    heads: int
    places: int
    slot_bytes: int

    @property
    def row_slots(self) -> int:
        return self.heads * self.places

    @property
    def tensor_bytes(self) -> int:
        return self.rows * self.row_slots * self.slot_bytes

    @property
    def size_bytes(self) -> int:
        return self.tensors * self.tensor_bytes

    def tensor_addresses(self) -> list[int]:
        return [self.address + tensor * self.tensor_bytes for tensor in range(self.tensors)]

    def starts(self, rows: Sequence[int]) -> list[int]:
        """The first slot of each row, within a tensor."""
        return [row * self.row_slots for row in rows]


class DeviceRuntime:
    """A device in use. One thread at a time."""

    def __init__(self, device: Device, longest: int) -> None:
        """`longest`: most places that are moved at once. Raises DeviceError."""
        self.device = device
        self._options = run_options()
        self._constants: list[Buffer] = []
        self._moves: dict[tuple[Block, int, int], ort.IOBinding] = {}
        self._tables: dict[tuple[int, int, int, int], int] = {}
        with ExitStack() as held:
            self.transfers = held.enter_context(closing(open_transfers(device)))
            held.callback(self._forget)
            self._mover = open_session(MOVE, device, self.transfers.stream)
            self._move_inputs = {value.name: value.shape for value in self._mover.get_inputs()}
            self.outbox = Outbox(self.transfers, self.allocate(OUTBOX_BYTES))
            self._desk = self.transfers.staging(DESK_BYTES)
            self._places = self.constant(np.arange(longest))
            self._held = held.pop_all()

    def close(self) -> None:
        """Gives back what it has, its session before the stream. Those that others opened here must be gone."""
        self._held.close()

    def _forget(self) -> None:
        """Drops what runs on the stream, and memory. There may be only some of it."""
        self._moves.clear()
        self._constants.clear()
        for name in ("outbox", "_desk", "_mover"):
            vars(self).pop(name, None)

    def open_session(
        self, graph: Graph | Path | bytes, capture: bool = False, library: Path | None = None
    ) -> ort.InferenceSession:
        """Loads a graph, whose operators may be in a library. Raises DeviceError."""
        return open_session(graph, self.device, self.transfers.stream, capture, library)

    def allocate(self, size_bytes: int) -> Buffer:
        """Memory on the device, uninitialised."""
        return allocate(self._mover, self.device.kind, self.device.index, size_bytes)

    def binding(
        self, session: ort.InferenceSession, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]
    ) -> ort.IOBinding:
        """A binding of addresses on the device."""
        binding, device = session.io_binding(), self.device
        for name, (element, shape, address) in inputs.items():
            binding.bind_input(name, device.kind, device.index, element, shape, address)
        for name, (element, shape, address) in outputs.items():
            binding.bind_output(name, device.kind, device.index, element, shape, address)
        return binding

    def move(
        self, source: Block, source_starts: Sequence[int], target: Block, target_starts: Sequence[int], length: int
    ) -> None:
        """Enqueues the copy of the first `length` places of rows that begin at these slots.

        A row that is written must not be read, here or later in the lists: they may be copied in several runs.
        """
        row_bytes = source.tensors * source.heads * length * source.slot_bytes
        most = max(1, MOVED_BYTES // row_bytes)
        for first in range(0, len(source_starts), most):
            part = slice(first, first + most)
            self.move_at_once(source, source_starts[part], target, target_starts[part], length)

    def move_at_once(
        self, source: Block, source_starts: Sequence[int], target: Block, target_starts: Sequence[int], length: int
    ) -> None:
        """The same in one run, in which everything is read before anything is written."""
        # The last move once more and once more, so that there are few shapes, and the arena does not grow.
        rows = 1 << (len(source_starts) - 1).bit_length()
        starts = [[*given, *[given[-1]] * (rows - len(given))] for given in (source_starts, target_starts)]
        sent = self.outbox.send(np.array(starts, np.int64))
        binding = self._move_binding(source, target, rows, length)
        for name, address in (("source_starts", sent), ("target_starts", sent + 8 * rows)):
            _, shape, _ = _tensor(self._move_inputs[name], {"rows": rows}, address)
            binding.bind_input(name, self.device.kind, self.device.index, INT64, shape, address)
        self._mover.run_with_iobinding(binding, self._options)

    def _move_binding(self, source: Block, target: Block, rows: int, length: int) -> ort.IOBinding:
        """A binding that lacks only the starts.

        Those of moves within a block are kept. Encoded sources lie elsewhere every time.
        """
        key = source, rows, length
        if source == target and key in self._moves:
            return self._moves[key]
        sizes = {"tensors": source.tensors, "heads": source.heads, "length": length}
        sizes |= {"words": source.slot_bytes // WORD_BYTES}
        sizes |= {"source_slots": source.tensors * source.rows * source.row_slots}
        sizes |= {"target_slots": target.tensors * target.rows * target.row_slots}
        addresses = {
            "source": source.address,
            "target": target.address,
            "source_table": self._table(source),
            "target_table": self._table(target),
            "source_places": self._places,
            "target_places": self._places,
        }
        inputs = {name: _tensor(self._move_inputs[name], sizes, address) for name, address in addresses.items()}
        binding = self.binding(self._mover, inputs, {"moved": inputs["target"]})
        if source == target:
            self._moves[key] = binding
        return binding

    def _table(self, block: Block) -> int:
        """Address of the slots at which the heads of a block's tensors begin [tensors, heads]."""
        key = block.tensors, block.rows, block.heads, block.places
        if key not in self._tables:
            tensors, heads = np.arange(block.tensors)[:, None], np.arange(block.heads)
            self._tables[key] = self.constant((tensors * block.rows * block.heads + heads) * block.places)
        return self._tables[key]

    def constant(self, values: ArrayLike) -> int:
        """Address of whole numbers that stay on the device."""
        array = np.array(values, np.int64)
        buffer = self.allocate(array.nbytes)
        for first in range(0, array.size, len(self._desk) // array.itemsize):
            part = array.reshape(-1)[first : first + len(self._desk) // array.itemsize]
            staged = self._desk[: part.nbytes]
            staged[:] = part.view(np.uint8)
            self.transfers.upload(staged, buffer.address + first * array.itemsize)
            self.transfers.wait()
        self._constants.append(buffer)
        return buffer.address

    def read(self, address: int, size_bytes: int) -> NDArray[np.uint8]:
        """What lies on the device, once everything enqueued is done."""
        parts = []
        for first in range(0, size_bytes, len(self._desk)):
            staged = self._desk[: min(len(self._desk), size_bytes - first)]
            self.transfers.download(address + first, staged)
            self.transfers.wait()
            parts.append(staged.copy())
        return np.concatenate(parts)


def _tensor(shape: Sequence[int | str], sizes: Mapping[str, int], address: int) -> Tensor:
    return INT64, tuple(axis if isinstance(axis, int) else sizes[axis] for axis in shape), address
