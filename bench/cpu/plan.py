"""Which sides there are, what is compared with what, and what was asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cpu.sides.ctranslate2 import SETUPS, Ctranslate2, Setup
from bench.cpu.sides.huggingface import HuggingFace
from bench.cpu.sides.ours import Ours
from bench.cpu.work import Side
from engine.loading.load import Kernels

FP32, FP32_STANDARD = "fp32", "fp32, standard operators"
INT8, INT8_STANDARD, INT8_SHORTLIST = "int8", "int8, standard operators", "int8 + shortlist"
OUR_SIDES = (FP32, FP32_STANDARD, INT8, INT8_STANDARD, INT8_SHORTLIST)
CT2_FP32, CT2_INT8, CT2_VMAP = "CTranslate2 fp32", "CTranslate2 int8", "CTranslate2 int8 + vmap"
TRANSFORMERS, OPTIMUM = "transformers fp32", "optimum (ONNX Runtime) fp32"
SIDES = (*OUR_SIDES, CT2_FP32, CT2_INT8, CT2_VMAP, TRANSFORMERS, OPTIMUM)
"""Of the race of decoding."""
SLOW_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Models:
    """Where they lie. All are of one checkpoint."""

    checkpoint: Path
    fp32: Path
    """The package that the server serves by default."""
    int8: Path
    int8_shortlist: Path
    converted: Path
    """A folder that CTranslate2's model comes to lie in."""
    lexicon: Path | None = None
    """A shortlist for the checkpoint's vocabulary, for CTranslate2."""
    optimum: str | None = None
    """A folder with optimum-onnx and the transformers that it wants."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One work of a race."""

    num_beams: int
    batch: int
    """Sentences decoded at a time by each worker."""
    sentences: int

    @property
    def name(self) -> str:
        search = "greedy" if self.num_beams == 1 else f"beam {self.num_beams}"
        return f"{search}, {self.batch}"


# Enough sentences for at least ten full batches on each worker, as in the last one places stay empty, and for a third
# of a second of the fastest side, as shorter turns differ by a tenth.
CELLS = (Cell(1, 1, 192), Cell(1, 8, 320), Cell(1, 32, 640), Cell(4, 1, 96), Cell(4, 8, 160), Cell(4, 32, 640))
QUICK_CELLS = (Cell(1, 1, 24), Cell(1, 8, 96), Cell(1, 32, 320), Cell(4, 8, 64))


@dataclass(frozen=True, slots=True)
class Pair:
    """A side of ours against another."""

    ours: str
    theirs: str
    asked: Mapping[str, float]
    """The least ratio that was asked for, by the name of the work."""


def asked(*ratios: float) -> dict[str, float]:
    """Of the first cells, in their order."""
    return {cell.name: ratio for cell, ratio in zip(CELLS, ratios, strict=False)}


PAIRS = (
    Pair(INT8, CT2_INT8, asked(2.5, 2.7, 2.4, 3.0, 2.5, 2.2)),
    Pair(INT8, CT2_VMAP, asked(1.0, 1.1, 1.3)),
    Pair(INT8_SHORTLIST, CT2_VMAP, asked(1.5, 1.5, 1.5)),
    Pair(INT8_STANDARD, CT2_INT8, asked(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)),
    Pair(FP32, CT2_FP32, asked(2.5, 2.5, 2.0, 1.5, 1.5, 1.5)),
    Pair(FP32_STANDARD, CT2_FP32, {}),
    Pair(FP32, TRANSFORMERS, {}),
    Pair(FP32, OPTIMUM, {}),
)
BASE_CELLS = (Cell(1, 1, 8), Cell(1, 8, 64), Cell(1, 32, 192), Cell(4, 8, 32))
BASE_PAIRS = (
    Pair(INT8, CT2_INT8, {"greedy, 1": 1.5, "greedy, 8": 1.5, "greedy, 32": 1.5, "beam 4, 8": 1.3}),
    Pair(FP32, CT2_FP32, {}),
)

FAMILY_CELLS = (Cell(1, 1, 8), Cell(1, 8, 64), Cell(1, 32, 192))
QUICK_FAMILY_CELLS = (Cell(1, 1, 4), Cell(1, 8, 32), Cell(1, 32, 128))
LARGE_CELLS = (Cell(1, 1, 2), Cell(1, 8, 16), Cell(1, 32, 64))
LARGE_LENGTH = 16
"""Longest targets of these: a step of 600 million weights takes a tenth of a second, and a batch for each worker is
enough where no target waits for another."""
FAMILY_PAIRS = tuple(
    Pair(ours, theirs, asked(ratio, ratio, ratio))
    for ours, theirs, ratio in ((FP32, CT2_FP32, 1.2), (INT8, CT2_INT8, 1.5))
)


def our_sides(models: Models) -> list[Side]:
    """Packages, each with our own operators and without."""
    runs: tuple[tuple[str, Path, Kernels], ...] = (
        (FP32_STANDARD, models.fp32, "off"),
        (FP32, models.fp32, "required"),
        (INT8_STANDARD, models.int8, "off"),
        (INT8, models.int8, "required"),
        (INT8_SHORTLIST, models.int8_shortlist, "required"),
    )
    return [Side(name, partial(Ours, package, kernels)) for name, package, kernels in runs]


def family_sides(models: Models, setups: Sequence[Setup]) -> list[Side]:
    """With our own operators; and CTranslate2."""
    ours = [side for side in our_sides(models) if side.name in (FP32, INT8)]
    return [*ours, *ctranslate2_sides(models, setups)]


def ctranslate2_sides(models: Models, setups: Sequence[Setup] = SETUPS) -> list[Side]:
    """CTranslate2 in fp32 and int8, and with the vocabulary mapping if there is one."""
    open_fp32 = partial(Ctranslate2, models.checkpoint, models.converted, "float32", None, setups)
    open_int8 = partial(Ctranslate2, models.checkpoint, models.converted, "int8", None, setups)
    sides = [Side(CT2_FP32, open_fp32), Side(CT2_INT8, open_int8)]
    if models.lexicon is not None:
        mapped = partial(Ctranslate2, models.checkpoint, models.converted, "int8", models.lexicon, setups)
        sides.append(Side(CT2_VMAP, mapped))
    return sides


def other_sides(models: Models) -> list[Side]:
    """`generate` of transformers, in PyTorch and in ONNX Runtime."""
    return [
        Side(TRANSFORMERS, partial(HuggingFace, models.checkpoint, "torch"), rounds=SLOW_ROUNDS),
        Side(
            OPTIMUM,
            partial(HuggingFace, models.checkpoint, "onnxruntime"),
            rounds=SLOW_ROUNDS,
            packages=models.optimum,
        ),
    ]
