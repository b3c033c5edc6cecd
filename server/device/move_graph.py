"""The one small graph that copies cached keys and values from row to row, on the device.

A *slot* is what one head keeps of one token: head_dim numbers, seen here as 8-byte lanes, so that the graph does not
ask what they are. The graph gathers slots of `source` and scatters them into `target`, which is written in place. Both
may be the same memory.

    source, target                  int64 [slots, lanes]
    source_table, target_table      int64 [tensors, 1, heads, 1 (, 1)]  where each head of each tensor begins
    source_starts, target_starts    int64 [rows, 1, 1 (, 1)]            where each row begins in its tensor
    source_places, target_places    int64 [length (, 1)]                0, 1, ..., length - 1
    moved                           int64 [slots, lanes]                `target` afterwards

The numbers of slots to read and to write are sums of three tables, so no node looks at a shape, and none runs on the
host. The graph is made here, at start, from its protobuf fields: packages need not bring it, and the server does not
need the onnx library, which would build it for any model in the same way.
"""

from collections.abc import Sequence

IR_VERSION, OPSET = 10, 21
INT64 = 7
"""onnx.TensorProto.INT64."""

INPUTS: dict[str, tuple[int | str, ...]] = {
    "source": ("source_slots", "lanes"),
    "target": ("target_slots", "lanes"),
    "source_table": ("tensors", 1, "heads", 1),
    "target_table": ("tensors", 1, "heads", 1, 1),
    "source_starts": ("rows", 1, 1),
    "target_starts": ("rows", 1, 1, 1),
    "source_places": ("length",),
    "target_places": ("length", 1),
}
OUTPUT = "moved"

NODES = (
    ("Add", ("source_table", "source_starts"), "source_heads"),
    ("Add", ("source_heads", "source_places"), "read"),
    ("Add", ("target_table", "target_starts"), "target_heads"),
    ("Add", ("target_heads", "target_places"), "written"),
    ("Gather", ("source", "read"), "slots"),
    ("ScatterND", ("target", "written", "slots"), OUTPUT),
)
"""Operator, inputs, output."""


def move_graph() -> bytes:
    """The graph as an ONNX file. Field numbers: onnx/onnx.proto."""
    graph = b"".join(
        [
            *(_message(1, _node(*node)) for node in NODES),
            _text(2, "move"),
            *(_message(11, _value(name, shape)) for name, shape in INPUTS.items()),
            _message(12, _value(OUTPUT, INPUTS["target"])),
        ]
    )
    opset = _text(1, "") + _number(2, OPSET)
    return _number(1, IR_VERSION) + _message(7, graph) + _message(8, opset)


def _node(operator: str, inputs: Sequence[str], output: str) -> bytes:
    return b"".join([*(_text(1, name) for name in inputs), _text(2, output), _text(3, output), _text(4, operator)])


def _value(name: str, shape: Sequence[int | str]) -> bytes:
    dims = (_number(1, axis) if isinstance(axis, int) else _text(2, axis) for axis in shape)
    tensor = _number(1, INT64) + _message(2, b"".join(_message(1, dim) for dim in dims))
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
