"""What one core can do at most, measured by peak.c, and what a model cannot do without: the floor of its time."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from bench.machine.noise import instructions
from models.config import ModelConfig, ModelShape

SOURCE = Path(__file__).with_name("peak.c")
WORKING_SETS = tuple(size << 19 for size in (1, 2, 4, 8, 16, 32, 64, 128, 512))
"""Bytes: from half a megabyte, which a second-level cache holds, to what no cache does."""

Numbers = Literal["fp32", "int8"]


class Peaks(BaseModel):
    """Of one core."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    int8: float
    """Multiply-adds of u8 and s8 a second."""
    int8_by: str
    """Instructions."""
    fp32: float
    """Fused multiply-adds a second."""
    read: dict[int, float]
    """Bytes a second, by the bytes of the working set."""

    def reads(self, size: int) -> float:
        """Bytes a second of a working set of so many bytes."""
        return self.read[next((measured for measured in sorted(self.read) if measured >= size), max(self.read))]


@dataclass(frozen=True, slots=True)
class Cost:
    """What cannot be avoided."""

    int8: float = 0.0
    """Multiply-adds of bytes."""
    fp32: float = 0.0
    """Multiply-adds of floats."""
    weights: int = 0
    """Bytes that are read once, however many rows there are."""

    def floor_s(self, peaks: Peaks) -> float:
        """Seconds of one core."""
        computed = self.int8 / peaks.int8 + self.fp32 / peaks.fp32
        return max(computed, self.weights / peaks.reads(self.weights))


@dataclass(frozen=True, slots=True)
class OutputLayer:
    """What is read and multiplied of it."""

    numbers: Numbers
    """Of the weights by which all tokens are looked at."""
    width: int | None = None
    """So many numbers of each token. None: all that it has."""
    projections: int = 0
    """Numbers of a row that are found first, in fp32: those that a coarse look is made by."""
    computed: int = 0
    """So many tokens of each row are computed in fp32 then, at least, by their whole weights."""
    stored: Numbers = "fp32"
    """Of the whole weights."""
    halved: bool = False
    """Whether two of the numbers by which tokens are looked at share a byte."""


def step_cost(config: ModelShape, rows: int, source: int, target: int, layers: Numbers, output: OutputLayer) -> Cost:
    """Of a Transformer's decoder step.

    source, target: tokens that each row attends to
    layers: numbers of the decoder's matrices; keys and values are floats always
    """
    assert isinstance(config, ModelConfig)
    width, depth = config.width, config.decoder_layers
    matrices = depth * (4 * width * width + 2 * width * width + 2 * width * config.decoder_ffn)
    looked_at = config.target_vocab_size * (output.width or width)
    attention = rows * depth * 2 * width * (source + target)
    of = {"int8": 0, "fp32": 0}
    of[layers] += matrices
    of[output.numbers] += looked_at
    of["fp32"] += output.projections * width
    computed = rows * output.computed * width
    weights = of["int8"] + 4 * of["fp32"] + computed * (1 if output.stored == "int8" else 4)
    if output.halved:
        weights -= looked_at // 2
    return Cost(rows * of["int8"], rows * of["fp32"] + attention + computed, weights)


def encoding_cost(config: ModelShape, source: int, numbers: Numbers) -> Cost:
    """Of a source of so many tokens, with the keys and values that the decoder takes of it."""
    assert isinstance(config, ModelConfig)
    width = config.width
    layer = 4 * width * width + 2 * width * config.encoder_ffn
    matrices = config.encoder_layers * layer + config.decoder_layers * 2 * width * width
    attention = config.encoder_layers * 2 * width * source * source
    if numbers == "int8":
        return Cost(int8=source * matrices, fp32=attention, weights=matrices)
    return Cost(fp32=source * matrices + attention, weights=4 * matrices)


def measure_peaks(sizes: Sequence[int] = WORKING_SETS) -> Peaks:
    """Compiles and runs peak.c. Raises FileNotFoundError where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("there is no C compiler to measure the machine's peak with: install gcc or clang")
    has = {"HAS_AVXVNNI": "avx_vnni", "HAS_AMX": "amx_int8"}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "peak"
        flags = ["-O3", "-march=native", *(f"-D{flag}={int(name in instructions())}" for flag, name in has.items())]
        subprocess.run([compiler, *flags, str(SOURCE), "-o", str(program)], check=True)
        run = subprocess.run([str(program), *map(str, sizes)], check=True, capture_output=True, text=True)
    found = {name: float(value) for name, value in (line.split() for line in run.stdout.splitlines())}
    of_int8 = {name: value for name, value in found.items() if name.startswith("u8s8")}
    if not of_int8:
        raise RuntimeError(f"peak.c knows no instructions of this processor; it has {instructions() or 'none we know'}")
    best = max(of_int8, key=of_int8.__getitem__)
    return Peaks(
        int8=of_int8[best],
        int8_by=best.removeprefix("u8s8_"),
        fp32=max(value for name, value in found.items() if name.startswith("fp32")),
        read={int(name.removeprefix("read_")): value for name, value in found.items() if name.startswith("read_")},
    )
