"""Models with random weights, whose targets never end: speed depends on a model's size, not on what it learnt."""

from pathlib import Path

import sentencepiece

from bench.cpu.plan import Models
from bench.packages.families import FamilyShape, write_family
from bench.packages.random_weights import write_checkpoint
from bench.packages.shapes import Shape
from bench.packages.unverified import write_package
from bench.sentences import english, flores, heldout
from models.package.precision import Precision

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")


def make(shape: Shape, folder: Path, tokenizer: Path) -> Models:
    """A checkpoint with the tokenizer of another, and its packages.

    Without verification: what agrees with what is tested with trained weights.
    """
    models = _models(folder)
    write_checkpoint(models.checkpoint, shape, tokenizer)
    for precision in PRECISIONS:
        write_package(models.checkpoint, "random", folder / precision, precision, "fused", native=True)
    return models


def make_family(shape: FamilyShape, folder: Path, tokenizer: Path) -> Models:
    """The same of another family."""
    models = _models(folder)
    write_family(models.checkpoint, shape, tokenizer)
    for precision in PRECISIONS:
        write_package(models.checkpoint, "random", folder / precision, precision, "fused", native=True)
    return models


def _models(folder: Path) -> Models:
    """Where they will lie."""
    folder.mkdir()
    return Models(
        folder / "checkpoint", folder / "fp32", folder / "int8", folder / "int8-shortlist", folder / "ctranslate2"
    )


class RealLengths:
    """English sentences, and how many tokens people's translations of them have."""

    def __init__(self, tokenizer: Path) -> None:
        processor = sentencepiece.SentencePieceProcessor(str(tokenizer / "target.spm"))
        references = flores("pt") + heldout("pt")
        self._lengths = [len(processor.encode(text)) + 1 for text in references]

    def __call__(self, count: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """So many texts, and the lengths of their targets."""
        lengths = tuple(self._lengths[index % len(self._lengths)] for index in range(count))
        return tuple(english(count)), lengths
