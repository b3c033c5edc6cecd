"""Small ONNX graphs, made at start from their protobuf fields (field numbers: onnx/onnx.proto).

Packages need not bring them, and the server does not need the onnx library, which would build them in the same way.
"""

from collections.abc import Mapping, Sequence

IR_VERSION, OPSET = 10, 21
FLOAT, INT32, INT64, FLOAT16, BFLOAT16 = 1, 6, 7, 10, 16
"""onnx.TensorProto."""

Axis = int | str
"""A number, or the name of an axis of any length."""
Value = tuple[int, tuple[Axis, ...]]
"""Element type and shape."""
Node = tuple[str, Sequence[str], str]
"""Operator, inputs, output. Operators with attributes are not needed so far."""


def graph_file(name: str, nodes: Sequence[Node], inputs: Mapping[str, Value], outputs: Mapping[str, Value]) -> bytes:
    """A graph as an ONNX file."""
    graph = b"".join(
        [
            *(_message(1, _node(*node)) for node in nodes),
            _text(2, name),
            *(_message(11, _value(*value)) for value in inputs.items()),
            *(_message(12, _value(*value)) for value in outputs.items()),
        ]
    )
    opset = _text(1, "") + _number(2, OPSET)
    return _number(1, IR_VERSION) + _message(7, graph) + _message(8, opset)


def _node(operator: str, inputs: Sequence[str], output: str) -> bytes:
    return b"".join([*(_text(1, name) for name in inputs), _text(2, output), _text(3, output), _text(4, operator)])


def _value(name: str, value: Value) -> bytes:
    element, shape = value
    dims = (_number(1, axis) if isinstance(axis, int) else _text(2, axis) for axis in shape)
    tensor = _number(1, element) + _message(2, b"".join(_message(1, dim) for dim in dims))
    return _text(1, name) + _message(2, _message(1, tensor))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
