"""The manifest of what export wrote."""

from importlib.metadata import version
from pathlib import Path

from export.stored_weights import StoredWeights
from models.checkpoint import Checkpoint
from models.package.folder import file_entries
from models.package.manifest import OUTPUT, SHORTLIST, WEIGHTS, Certificate, Manifest, Source
from models.package.precision import AttentionKind, Precision

TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "transformers", "sentencepiece")


def make_manifest(
    checkpoint: Checkpoint,
    name: str,
    folder: Path,
    precision: Precision,
    attention: AttentionKind,
    certificate: Certificate,
    weights: str = WEIGHTS,
) -> Manifest:
    """The manifest of what lies in `folder`, where `weights` is the file that the graphs use."""
    return Manifest(
        name=name,
        model=checkpoint.config,
        tokenizer=checkpoint.tokenizer,
        source_languages=checkpoint.source_languages,
        target_languages=checkpoint.target_languages,
        generation=checkpoint.generation,
        output_graph=None if checkpoint.shortlist is None else OUTPUT,
        shortlist=None if checkpoint.shortlist is None else SHORTLIST,
        precision=precision,
        attention=attention,
        weights=weights,
        files=file_entries(folder),
        checkpoint=Source(name=checkpoint.name, sha256=checkpoint.sha256),
        tools={tool: version(tool) for tool in TOOLS},
        certificate=certificate,
    )


def package_files(checkpoint: Checkpoint, stored: StoredWeights | None) -> dict[str, Path]:
    """What is copied into the package, by its name there."""
    shortlist = {} if checkpoint.shortlist is None else {SHORTLIST: checkpoint.shortlist}
    return checkpoint.files | shortlist | ({} if stored is None else {stored.file.name: stored.file})
