"""Texts from tensors, and tensors of what becomes of them: https://github.com/kserve/open-inference-protocol.

Values are typed (`contents`) or raw: little-endian numbers, and of BYTES each the length as uint32, then the bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from server.errors import TooManyContents, quoted
from server.kserve.errors import InvalidTensor
from server.kserve.v2.inference_pb2 import ModelInferRequest, ModelInferResponse

BYTES, FP32, INT32 = "BYTES", "FP32", "INT32"
CONTENTS = {BYTES: "bytes_contents", FP32: "fp32_contents", INT32: "int_contents"}
"""The field of typed values, by datatype."""
NUMBERS = {FP32: "<f4", INT32: "<i4"}
"""numpy's names of raw numbers."""
LENGTH_BYTES = 4
"""Of the length before each raw text."""
MOST_INPUTS = 1
SIZE, BINARY = "binary_data_size", "binary_data"
"""What KServe's own client says of a raw input, and may of an output: it does by gRPC, too, what it has to by HTTP."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A tensor as metadata tell of it."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    """Without the batch. -1: any."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor with its values, [texts, ...], flattened in row-major order."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Sequence[Any]
    """Texts, or numbers."""


def is_raw(request: ModelInferRequest) -> bool:
    """Whether its values are raw, and so those of its answer."""
    return bool(request.raw_input_contents)


def texts_of(request: ModelInferRequest, name: str, most: int) -> list[str]:
    """The texts of the one input, which has this name. Raises InvalidTensor, or TooManyContents: `most` may come."""
    if len(request.inputs) != MOST_INPUTS:
        raise InvalidTensor("the number of inputs", len(request.inputs), MOST_INPUTS, f"send {name} alone")
    [tensor] = request.inputs
    if tensor.name != name:
        raise InvalidTensor("the name of the input", quoted(tensor.name), quoted(name))
    if tensor.datatype != BYTES:
        raise InvalidTensor(f"{name}.datatype", quoted(tensor.datatype), quoted(BYTES))
    _check_parameters(request, name)
    texts = _batch(name, tensor.shape)
    if texts > most:
        raise TooManyContents(texts, most)
    if not is_raw(request):
        return _decoded(name, _typed(name, tensor.contents, texts))
    if len(request.raw_input_contents) != MOST_INPUTS or tensor.HasField("contents"):
        brought = len(request.raw_input_contents) + tensor.HasField("contents")
        raise InvalidTensor(f"the number of contents of {name}", brought, 1, "send raw or typed values, and not both")
    return _decoded(name, list(_elements(name, request.raw_input_contents[0], texts)))


def _check_parameters(request: ModelInferRequest, name: str) -> None:
    parameters, raw = request.inputs[0].parameters, request.raw_input_contents
    others = len(parameters) - (SIZE in parameters)
    if others:
        raise InvalidTensor(f"the number of {name}.parameters", others, 0, "send the values themselves")
    if SIZE in parameters and raw and parameters[SIZE].int64_param != len(raw[0]):
        said = parameters[SIZE].int64_param
        raise InvalidTensor(f"{name}.parameters[{SIZE}]", said, f"{len(raw[0])}, the size of raw_input_contents[0]")


def _batch(name: str, shape: Sequence[int]) -> int:
    """How many texts a shape is of."""
    if len(shape) not in (1, 2) or shape[0] < 0 or any(length != 1 for length in shape[1:]):
        raise InvalidTensor(f"{name}.shape", _shown(shape), "[texts, 1] or [texts]")
    return shape[0]


def _shown(shape: Sequence[int], most: int = 8) -> str:
    return f"[{', '.join(map(str, shape[:most]))}{', ...' if len(shape) > most else ''}]"


def _typed(name: str, contents: Any, texts: int) -> Sequence[bytes]:
    for field, values in contents.ListFields():
        if field.name != CONTENTS[BYTES]:
            raise InvalidTensor(f"{name}.contents", f"{len(values)} {field.name}", CONTENTS[BYTES])
    found: Sequence[bytes] = contents.bytes_contents
    if len(found) != texts:
        raise InvalidTensor(f"the number of {name}.contents.bytes_contents", len(found), f"{texts}, as its shape says")
    return found


def _elements(name: str, raw: bytes, texts: int) -> Iterator[bytes]:
    where = f"the size of raw_input_contents[0], of {name},"
    begin = 0
    for index in range(texts):
        end = begin + LENGTH_BYTES
        if end <= len(raw):
            end += int.from_bytes(raw[begin:end], "little")
        if end > len(raw):
            raise InvalidTensor(where, f"{len(raw)} bytes", f"{end} or more for {name}[{index}] of {texts} to end")
        yield raw[begin + LENGTH_BYTES : end]
        begin = end
    if begin != len(raw):
        raise InvalidTensor(where, f"{len(raw)} bytes", f"{begin}, where the last of {texts} ends")


def _decoded(name: str, values: Sequence[bytes]) -> list[str]:
    texts = []
    for index, value in enumerate(values):
        try:
            texts.append(value.decode())
        except UnicodeDecodeError as error:
            raise InvalidTensor(
                f"byte {error.start} of {name}[{index}]", f"0x{value[error.start]:02x}", "UTF-8"
            ) from None
    return texts


def wanted(request: ModelInferRequest, declared: Sequence[Declared]) -> list[str]:
    """The names of the outputs that are to come back; all, where none is named. Raises InvalidTensor."""
    known = [output.name for output in declared]
    names = [output.name for output in request.outputs]
    for output in request.outputs:
        if output.name not in known:
            raise InvalidTensor("the name of an output", quoted(output.name), " or ".join(known))
        others = len(output.parameters) - (BINARY in output.parameters)
        if others:
            where = f"the number of parameters of output {output.name}"
            raise InvalidTensor(where, others, 0, "values come back as they are, in the answer")
    if len(set(names)) != len(names):
        raise InvalidTensor("the number of outputs", len(names), f"at most {len(set(names))}, each name once")
    return names or known


def write(response: ModelInferResponse, tensors: Sequence[Tensor], raw: bool) -> None:
    """Puts tensors into a response."""
    for tensor in tensors:
        assert len(tensor.values) == prod(tensor.shape), tensor
        output = response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        values = [text.encode() for text in tensor.values] if tensor.datatype == BYTES else tensor.values
        if raw:
            response.raw_output_contents.append(_raw(values, tensor.datatype))
        else:
            getattr(output.contents, CONTENTS[tensor.datatype]).extend(values)


def _raw(values: Sequence[Any], datatype: str) -> bytes:
    if datatype == BYTES:
        return b"".join(len(value).to_bytes(LENGTH_BYTES, "little") + value for value in values)
    return np.asarray(values, NUMBERS[datatype]).tobytes()
