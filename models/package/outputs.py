"""What the graphs of a package give, read from their files: most are loaded when they are first used, or never asked.

ONNX is protobuf (https://github.com/onnx/onnx, onnx/onnx.proto): a ModelProto has one GraphProto, that its outputs.
"""

from collections.abc import Iterator

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from models.package import signature
from models.package.checked import EXPORT_AGAIN, PackageError, read
from models.package.declared.graphs import GraphFile, GraphsSpec
from models.package.graph_files import GraphFiles

GRAPH, OUTPUT, NAME = 7, 12, 1
"""Numbers of the fields of ModelProto, GraphProto and ValueInfoProto."""


def check_outputs(graphs: GraphFiles) -> None:
    """Raises PackageError for a graph that does not give what the manifest says: its first request would find out."""
    for declared, names in _declared(graphs.spec):
        file = graphs.folder / declared.file
        given = outputs(read(file, graphs.entries.get(declared.file)))
        for name in names:
            if name not in given:
                raise PackageError(
                    f"{file} does not give {name}, which the manifest declares; it gives "
                    f"{', '.join(given) or 'nothing'}: {EXPORT_AGAIN}"
                )


def outputs(model: bytes) -> list[str]:
    """Their names, in order. Of what is no model there are none."""
    return [
        name.decode(errors="replace")
        for graph in _fields(model, GRAPH)
        for output in _fields(graph, OUTPUT)
        for name in _fields(output, NAME)
    ]


def _declared(spec: GraphsSpec) -> Iterator[tuple[GraphFile, list[str]]]:
    """Graphs, and what each of them must give."""
    within = spec.encoder_attention.outputs if spec.encoder_attention else []
    yield spec.encoder, [spec.hidden, *within]
    if spec.decoder is not None:
        asked = [spec.cross_query.name] if spec.cross_query else [spec.cross_scores] if spec.cross_scores else []
        logits = [] if spec.logits is None or spec.logits.graph else [spec.logits.name]
        yield spec.decoder, [*signature.DECODER_OUTPUTS, *asked, *logits]
    if spec.logits is not None and spec.logits.graph is not None:
        yield spec.logits.graph, [spec.logits.name]
    if spec.scoring is not None:
        looks = spec.scoring.attention.outputs if spec.scoring.attention else []
        yield spec.scoring.target, [signature.STATES, *looks]
        yield spec.scoring.log_probs, [signature.LOG_PROBS]
    if spec.source_attention is not None:
        yield spec.source_attention, [*(signature.STACK_ATTENTION_OUTPUTS if spec.reads_on else [signature.ATTENTION])]


def _fields(message: bytes, number: int) -> Iterator[bytes]:
    """The contents of a message's fields of this number."""
    try:
        fields = UnknownFieldSet(Empty.FromString(message))
    except DecodeError:
        return
    for field in (fields[index] for index in range(len(fields))):
        if field.field_number == number and isinstance(field.data, bytes):
            yield field.data
