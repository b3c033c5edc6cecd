"""What the graphs of a package take and give, by their files: most are loaded when they are first used, or never.

ONNX is protobuf (https://github.com/onnx/onnx, onnx/onnx.proto): a ModelProto has one GraphProto, that its inputs and
outputs.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from models.package.checked import EXPORT_AGAIN, PackageError, read
from models.package.declared.inputs_outputs import Tensor, Wanted, wanted
from models.package.graph_files import GraphFiles

GRAPH, INPUT, OUTPUT, NAME, TYPE, TENSOR, ELEMENT, SHAPE, AXIS, NUMBER, WORD = 7, 11, 12, 1, 2, 1, 1, 2, 1, 1, 2
"""Numbers of the fields of ModelProto, GraphProto, ValueInfoProto, TypeProto, TypeProto.Tensor, TensorShapeProto and
its Dimension."""
NODE, FUNCTION, NODE_OF_FUNCTION, OPERATOR, BYTES = 1, 25, 7, 4, 2
"""The same of GraphProto, ModelProto, FunctionProto and NodeProto; and how texts are written."""
CONTROL = frozenset({b"If", b"Loop", b"Scan", b"SequenceMap"})
"""Operators that run graphs of their own, perhaps for ever: a start or a reload would not come to its end."""


def check_graphs(graphs: GraphFiles) -> None:
    """Raises PackageError for a graph that does not take or give what an engine, by the manifest, asks of it.

    Its first request would find out. Nor may any run others in itself, which export writes never.
    """
    asked = list(wanted(graphs.spec))
    for graph in graphs.spec.files:
        file = graphs.folder / graph.file
        model = read(file, graphs.entries.get(graph.file))
        _check_operators(file, model)
        for one in asked:
            if one.graph.file == graph.file:
                _check_tensors(file, model, one)


def operators(model: bytes) -> set[bytes]:
    """Those of its nodes."""
    nodes = [node for graph in _inside(model, GRAPH) for node in _inside(graph, NODE)]
    nodes += [node for function in _inside(model, FUNCTION) for node in _inside(function, NODE_OF_FUNCTION)]
    return {name for node in nodes for name in _inside(node, OPERATOR)}


def tensors(model: bytes) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Inputs and outputs by name, in order. Of what is no model there are none."""
    takes, gives = dict[str, Tensor](), dict[str, Tensor]()
    for graph in _inside(model, GRAPH):
        for number, value in _fields(graph):
            if number in (INPUT, OUTPUT) and isinstance(value, bytes):
                for name in _inside(value, NAME):
                    (takes if number == INPUT else gives)[name.decode(errors="replace")] = _tensor(value)
    return takes, gives


def _check_operators(file: Path, model: bytes) -> None:
    # Looked for as it would be written: to take all nodes apart takes milliseconds of every start.
    written = {name for name in CONTROL if bytes((OPERATOR << 3 | BYTES, len(name))) + name in model}
    if written and (odd := written & operators(model)):
        named = ", ".join(sorted(name.decode() for name in odd))
        raise PackageError(f"{file} has the operator {named}, which no exported graph has: {EXPORT_AGAIN}")


def _check_tensors(file: Path, model: bytes, asked: Wanted) -> None:
    takes, gives = tensors(model)
    _check(file, "give", "which the manifest declares", gives, asked.gives)
    if asked.takes is not None:
        _check(file, "take", "which it is to be fed", takes, asked.takes)
        for name in takes.keys() - asked.takes.keys():
            raise PackageError(f"{file} takes {name}, which nobody feeds it: {EXPORT_AGAIN}")


def _check(file: Path, verb: str, why: str, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for name, tensor in wanted.items():
        if name not in found:
            there = ", ".join(found) or "nothing"
            raise PackageError(f"{file} does not {verb} {name}, {why}; it {verb}s {there}: {EXPORT_AGAIN}")
        if not found[name].fits(tensor):
            raise PackageError(f"{file} {verb}s {name} as {found[name]}; it must be {tensor}: {EXPORT_AGAIN}")


def _tensor(value: bytes) -> Tensor:
    """What a ValueInfoProto says of one."""
    element, axes = 0, None
    for kind in _inside(value, TYPE):
        for tensor in _inside(kind, TENSOR):
            for number, content in _fields(tensor):
                if number == ELEMENT and isinstance(content, int):
                    element = content
                elif number == SHAPE and isinstance(content, bytes):
                    axes = tuple(_axis(axis) for axis in _inside(content, AXIS))
    return Tensor(element, axes)


def _axis(axis: bytes) -> int | str:
    found: int | str = "?"
    for number, content in _fields(axis):
        if number == NUMBER and isinstance(content, int):
            found = content
        elif number == WORD and isinstance(content, bytes):
            found = content.decode(errors="replace")
    return found


def _inside(message: bytes, number: int) -> Iterator[bytes]:
    """The contents of a message's fields of this number that are messages or texts."""
    for found, content in _fields(message):
        if found == number and isinstance(content, bytes):
            yield content


def _fields(message: bytes) -> Iterator[tuple[int, object]]:
    """Numbers and contents of a message's fields."""
    try:
        fields = UnknownFieldSet(Empty.FromString(message))
    except DecodeError:
        return
    for field in (fields[index] for index in range(len(fields))):
        yield field.field_number, field.data
