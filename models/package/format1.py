"""Manifests of format 1, in which the engine's shapes followed from the architecture."""

from collections.abc import Mapping

from pydantic import BaseModel

from models.config import ModelConfig
from models.package import derived, signature
from models.package.declared.graphs import FileName
from models.package.declared.precision import AttentionKind, Precision


class Graphs(BaseModel):
    """What format 1 says of the graphs. They give no logits, and nothing of where rows look."""

    model: ModelConfig
    precision: Precision = "fp32"
    attention: AttentionKind = "fused"
    encoder_graph: FileName = signature.ENCODER
    decoder_graph: FileName = signature.DECODER
    output_graph: FileName | None = None


def to_format2(content: Mapping[str, object]) -> dict[str, object]:
    """What manifest.json would say in format 2. Raises pydantic.ValidationError."""
    old = Graphs.model_validate(content)
    spec = derived.graphs_spec(old.model, old.precision, old.attention, shortlist=old.output_graph is not None)
    graphs = spec.model_dump(mode="json") | {"hidden": "memory"}
    files = {"encoder": old.encoder_graph, "decoder": old.decoder_graph, "output": old.output_graph}
    for graph, file in files.items():
        if file is not None:
            graphs[graph]["file"] = file
    kept = {name: value for name, value in content.items() if name == "model" or name not in Graphs.model_fields}
    return kept | {"format_version": 2, "graphs": graphs}
