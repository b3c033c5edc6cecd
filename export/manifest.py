"""The manifest of what export wrote."""

from importlib.metadata import version
from pathlib import Path

import onnxruntime

from export.verification.verify import Verified
from export.weights.stored import StoredWeights
from models.checkpoint import Checkpoint
from models.package.folder import file_entries
from models.package.graph_files import GraphFiles
from models.package.manifest import SHORTLIST, WEIGHTS, Manifest, Origin

TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "transformers", "sentencepiece")


def make_manifest(
    checkpoint: Checkpoint, name: str, graphs: GraphFiles, verified: Verified, weights: str = WEIGHTS
) -> Manifest:
    """The manifest of what lies in the folder of the graphs, where `weights` is the file that they use."""
    return Manifest(
        name=name,
        model=checkpoint.config,
        tokenizer=checkpoint.tokenizer,
        source_languages=checkpoint.source_languages,
        target_languages=checkpoint.target_languages,
        languages=dict(checkpoint.languages),
        generation=checkpoint.generation,
        encoding=checkpoint.encoding,
        prompts=dict(checkpoint.prompts),
        prompt=next(iter(checkpoint.prompts), None),
        graphs=graphs.spec.model_copy(update={"probes": verified.probes, "aligner": verified.aligner}),
        shortlist=None if graphs.shortlist is None else SHORTLIST,
        weights=weights,
        files=file_entries(graphs.folder),
        checkpoint=Origin(name=checkpoint.name, sha256=checkpoint.sha256, pinned=checkpoint.pinned),
        # Not by its name: the one for GPUs has another.
        tools={tool: version(tool) for tool in TOOLS} | {"onnxruntime": onnxruntime.__version__},
        certificate=verified.certificate,
        native_certificate=verified.native,
    )


def package_files(checkpoint: Checkpoint, stored: StoredWeights | None) -> dict[str, Path]:
    """What is copied into the package, by its name there."""
    return checkpoint.files | ({} if stored is None else {stored.file.name: stored.file})
