"""Packages by the export's own steps, but for its verification."""

import shutil
from pathlib import Path

import torch

from export.manifest import make_manifest
from export.save import save
from export.trace import trace
from export.variant import variant
from models.checkpoint import load_checkpoint
from models.package.folder import draft, publish
from models.package.manifest import Certificate
from models.package.precision import AttentionKind, Precision


def write_package(folder: Path, name: str, target: Path, precision: Precision, attention: AttentionKind) -> None:
    """Makes a package at `target` of the checkpoint in `folder`."""
    torch.set_num_threads(1)  # the examples of a trace are small
    unverified = Certificate(tolerance=0, encoder_error=0, steps=(), agreements=())
    checkpoint = load_checkpoint(folder)
    with draft(target) as drafted:
        graphs = save(trace(variant(checkpoint.model, precision, attention), attention), drafted)
        for file_name, file in checkpoint.files.items():
            shutil.copyfile(file, drafted / file_name)
        publish(drafted, make_manifest(checkpoint, name, graphs, unverified), target)
