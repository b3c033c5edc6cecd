"""Models with random weights, whose targets never end: speed depends on a model's size, not on what it learnt."""

import shutil
from collections.abc import Callable
from pathlib import Path

import sentencepiece

from bench.cpu.plan import Models
from bench.packages.families import FamilyShape, write_family
from bench.packages.random_weights import write_checkpoint
from bench.packages.shapes import Shape
from bench.packages.unverified import write_package
from bench.sentences import flores, heldout
from models.package.declared.precision import Precision

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")


def make(shape: Shape, folder: Path, tokenizer: Path) -> Models:
    """A checkpoint with the tokenizer of another, and its packages, unless the folder has them.

    Without verification: what agrees with what is tested with trained weights.
    """
    return _make(folder, lambda checkpoint: write_checkpoint(checkpoint, shape, tokenizer))


def make_family(shape: FamilyShape, folder: Path, tokenizer: Path) -> Models:
    """The same of another family."""
    return _make(folder, lambda checkpoint: write_family(checkpoint, shape, tokenizer))


def _make(folder: Path, write: Callable[[Path], None]) -> Models:
    models = Models(
        folder / "checkpoint", folder / "fp32", folder / "int8", folder / "int8-shortlist", folder / "ctranslate2"
    )
    if models.int8.exists():  # the last to be made
        return models
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write(models.checkpoint)
    for precision in PRECISIONS:
        write_package(models.checkpoint, "random", folder / precision, precision, "fused", native=True)
    return models


class RealLengths:
    """English sentences, and how many tokens people's translations of them have."""

    def __init__(self, tokenizer: Path, most: int | None = None) -> None:
        """most: sentences whose translations have more tokens are left out."""
        processor = sentencepiece.SentencePieceProcessor(str(tokenizer / "target.spm"))
        texts, references = flores() + heldout(), flores("pt") + heldout("pt")
        pairs = (
            (text, len(processor.encode(reference)) + 1) for text, reference in zip(texts, references, strict=True)
        )
        self._pairs = [pair for pair in pairs if most is None or pair[1] <= most]

    def __call__(self, count: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """So many texts, and the lengths of their targets: from the beginning again if need be."""
        texts, lengths = zip(*(self._pairs[index % len(self._pairs)] for index in range(count)), strict=True)
        return texts, lengths
