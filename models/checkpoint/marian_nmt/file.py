"""Reads a model file of Marian NMT: .npz, or the binary format (.bin) of its engines for CPUs, Firefox's among them.

A binary file is little-endian; its numbers are uint64, those of shapes int32:

    version, number of items
    of each item: bytes of its name, type, number of dimensions, bytes of its data
    the names, each with a NUL at its end
    the shapes
    bytes of padding, the padding, the data

One item, special:model.yml, is the configuration as YAML. Sources: src/common/binary.cpp and types.h of
https://github.com/marian-nmt/marian-dev, and src/tensors/cpu/expression_graph_packable.h of
https://github.com/browsermt/marian-dev for the matrices of 8 bits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.reading import TensorFile

VERSION = 1
CONFIGURATION = "special:model.yml"
ACTIVATION_SCALES = "_QuantMultA"
"""Ending of the items that only products of 8-bit numbers need."""
INT8, FLOAT16, FLOAT32, INTGEMM8 = 0x101, 0x402, 0x404, 0x4101
SUPPORTED = {FLOAT16: "float16", FLOAT32: "float32", INTGEMM8: "intgemm8"}
OTHERS = {
    INT8: "int8",
    0x102: "int16",
    0x104: "int32",
    0x408: "float64",
    0x802: "packed16",
    0x1801: "packed8avx2",
    0x2801: "packed8avx512",
    0x4102: "intgemm16",
    # marian-dev numbers the types of intgemm otherwise than browsermt, from which Firefox has its models.
    0x10001: "marian-dev's intgemm8",
    0x10002: "marian-dev's intgemm16",
    0x11001: "intgemm8avx2",
    0x11002: "intgemm16avx2",
    0x12001: "intgemm8avx512",
    0x12002: "intgemm16avx512",
    0x13001: "intgemm8avx512vnni",
    0x14002: "intgemm16sse2",
    0x18001: "intgemm8ssse3",
}
"""Types that are refused. Most are tiled for the registers of one kind of CPU."""


@dataclass(frozen=True)
class Item:
    """A named array of a binary file."""

    name: str
    type: int
    shape: tuple[int, ...]
    data: bytes
    """Often longer than the shape needs."""


def read_marian_file(file: Path) -> tuple[dict[str, Any], TensorFile]:
    """Returns the configuration and the tensors, of the shapes that Marian declares. Raises CheckpointError."""
    arrays = _read_npz(file) if file.suffix == ".npz" else _read_binary(file)
    if CONFIGURATION not in arrays:
        raise CheckpointError(f"{file} has no {CONFIGURATION}, which says what model it is")
    configuration = _parse_configuration(file, arrays[CONFIGURATION].tobytes())
    return configuration, TensorFile(file, _tensors(file, arrays))


def _parse_configuration(file: Path, data: bytes) -> dict[str, Any]:
    try:
        content = yaml.safe_load(data.rstrip(b"\0"))
    except Exception as error:  # PyYAML has errors of its own, and lets those of Python's conversions through
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{file}: {CONFIGURATION} is not YAML: {reason}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file}: {CONFIGURATION} is not a YAML mapping, but begins with {str(content)[:20]!r}")
    return content


def _tensors(file: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    tensors = {}
    for name, array in arrays.items():
        if name == CONFIGURATION or name.endswith(ACTIVATION_SCALES):
            continue
        if array.dtype.kind != "f":
            raise CheckpointError(f"{file}: tensor {name} is {array.dtype}; expected floating-point numbers")
        tensors[name] = torch.from_numpy(array.astype(np.float32))
    return tensors


def _read_npz(file: Path) -> dict[str, NDArray[Any]]:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except Exception as error:  # whatever a stream of bytes that is no archive leads to
        reason = str(error).partition("\n")[0]
        if "pickle" in reason:  # what it advises would run code of the file
            reason = "it is no archive, or has more than numbers"
        raise CheckpointError(f"{file} is not a whole .npz file: {reason}") from error


def _read_binary(file: Path) -> dict[str, NDArray[Any]]:
    items = _read_items(file)
    names = {item.name for item in items}
    if len(names) < len(items):
        raise CheckpointError(f"{file}: {len(items)} items share {len(names)} names; expected a name for each")
    return {item.name: _to_array(file, item) for item in items if not item.name.endswith(ACTIVATION_SCALES)}


class _Cursor:
    """Goes through the bytes of a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._data = file.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{file} cannot be read: {error.strerror}") from error
        self._offset = 0

    @property
    def left(self) -> int:
        """Bytes."""
        return len(self._data) - self._offset

    def take(self, size: int, what: str) -> bytes:
        if size > self.left:
            raise CheckpointError(f"{self._file} is cut short: {what} takes {size} bytes, and {self.left} are left")
        self._offset += size
        return self._data[self._offset - size : self._offset]

    def numbers(self, count: int, what: str, dtype: str = "<u8") -> list[int]:
        found: list[int] = np.frombuffer(self.take(count * np.dtype(dtype).itemsize, what), dtype).tolist()
        return found


def _read_items(file: Path) -> list[Item]:
    cursor = _Cursor(file)
    version, count = cursor.numbers(2, "the header")
    if version != VERSION:
        raise CheckpointError(f"{file} is not a Marian binary model: its version is {version}; expected {VERSION}")
    header = cursor.numbers(4 * count, f"the header of {count} items")
    name_sizes, types, ranks, data_sizes = (header[field::4] for field in range(4))
    names = [_decode_name(file, cursor.take(size, "a name")) for size in name_sizes]
    shapes = [
        tuple(cursor.numbers(rank, f"the shape of {name}", "<i4")) for name, rank in zip(names, ranks, strict=True)
    ]
    (padding,) = cursor.numbers(1, "the size of the padding")
    cursor.take(padding, "the padding")
    data = [cursor.take(size, f"the data of {name}") for name, size in zip(names, data_sizes, strict=True)]
    if cursor.left:
        raise CheckpointError(f"{file} is not a Marian binary model: {cursor.left} bytes follow its last item")
    return [Item(*parts) for parts in zip(names, types, shapes, data, strict=True)]


def _decode_name(file: Path, data: bytes) -> str:
    try:
        return data.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file} is not a Marian binary model: an item's name is {data!r}") from error


def _to_array(file: Path, item: Item) -> NDArray[Any]:
    """The item's numbers, as floating-point numbers unless it is the configuration."""
    size = math.prod(item.shape)
    if min(item.shape, default=0) < 1:
        raise CheckpointError(f"{file}: {item.name} has shape {list(item.shape)}; expected positive sizes")
    if item.name == CONFIGURATION:
        return _numbers(file, item, "<i1", size)
    if item.type == INTGEMM8:
        return _dequantise(file, item, size)
    if item.type not in SUPPORTED:
        raise CheckpointError(
            f"{file}: tensor {item.name} is {OTHERS.get(item.type, f'of type {item.type:#x}')}; "
            f"supported: {', '.join(SUPPORTED.values())}. Take the model's .npz, from which it was made"
        )
    return _numbers(file, item, "<f2" if item.type == FLOAT16 else "<f4", size).reshape(item.shape)


def _dequantise(file: Path, item: Item, size: int) -> NDArray[np.float32]:
    """8-bit numbers and, after them, what they were multiplied with.

    Matrices are stored transposed, as intgemm wants them, and only embeddings are not.
    """
    quantised = _numbers(file, item, "<i1", size)
    (multiplier,) = _numbers(file, item, "<f4", 1, offset=size)
    if not 0 < multiplier < math.inf:
        raise CheckpointError(f"{file}: tensor {item.name} has the multiplier {multiplier}; expected a positive number")
    numbers: NDArray[np.float32] = quantised.astype(np.float32) / multiplier
    return numbers.reshape(item.shape) if item.name.endswith("Wemb") else numbers.reshape(item.shape[::-1]).T


def _numbers(file: Path, item: Item, dtype: str, count: int, offset: int = 0) -> NDArray[Any]:
    needed = offset + count * np.dtype(dtype).itemsize
    if len(item.data) < needed:
        raise CheckpointError(
            f"{file}: {item.name} has {len(item.data)} bytes of data; its shape {list(item.shape)} needs {needed}"
        )
    return np.frombuffer(item.data, dtype, count, offset)
