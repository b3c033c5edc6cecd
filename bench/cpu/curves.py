"""What a token costs when one thing changes: rows, lengths, vocabulary, beams, workers. Beside it the floor."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from bench.cpu import random_models
from bench.cpu.plan import CT2_FP32, CT2_INT8, FP32, INT8, Models
from bench.cpu.races import CLOSED
from bench.cpu.sides.ctranslate2 import ComputeType, Ctranslate2, Setup
from bench.cpu.sides.ours import Ours
from bench.cpu.steps import output_layer
from bench.cpu.turns import Player, players, race
from bench.cpu.work import WORKERS, Side, Work
from bench.machine.peak import Numbers, OutputLayer, Peaks, encoding_cost, step_cost
from bench.measure import Series
from bench.packages.shapes import tiny
from models.config import ModelShape
from models.package.folder import Package

REPEATS = 3
TOKENS = 1500
"""Of a turn at least, of each worker."""
WORD = "the"
"""One piece, so that texts have the length they are to have."""


@dataclass(frozen=True, slots=True)
class Point:
    """One place on a curve."""

    rows: int = 8
    """Sentences at a time on each worker."""
    source: int = 28
    target: int = 32
    vocabulary: int = 32100
    beams: int = 1
    workers: int = WORKERS

    @property
    def work(self) -> Work:
        """Enough full batches for every worker."""
        batches = max(1, -(-TOKENS // (self.rows * self.target)))
        count = self.rows * self.workers * batches
        text = " ".join([WORD] * (self.source - 1))
        return Work((text,) * count, self.beams, self.rows, (self.target,) * count)


AXES: Mapping[str, tuple[int, ...]] = {
    "rows": (1, 2, 4, 8, 16, 32, 64),
    "source": (8, 16, 32, 64, 128, 256),
    "target": (8, 16, 32, 64, 128, 256),
    "vocabulary": (32100, 64000, 96000, 256000),
    "beams": (1, 2, 4, 8),
    "workers": (1, 2),
}


class Curve(BaseModel):
    """Microseconds of a core for each target token, encoding counted."""

    model_config = CLOSED

    axis: str
    values: list[int]
    series: dict[str, list[float | None]]
    """By side; None where a side did not run."""


def measure(tokenizer: Path, peaks: Peaks) -> Iterator[Curve]:
    """Every curve, of the zoo's size with random weights."""
    with tempfile.TemporaryDirectory() as folder:
        models: dict[int, Models] = {}
        for axis, values in AXES.items():
            points = [replace(Point(), **{axis: value}) for value in values]
            for size in {point.vocabulary for point in points} - set(models):
                models[size] = random_models.make(tiny(size), Path(folder) / str(size), tokenizer)
            yield _curve(axis, points, models, peaks)


def _curve(axis: str, points: Sequence[Point], models: Mapping[int, Models], peaks: Peaks) -> Curve:
    """The sides stay open from point to point of the same model and number of workers."""
    found: list[dict[str, float]] = []
    kinds = list(dict.fromkeys((point.vocabulary, point.workers) for point in points))
    for vocabulary, workers in kinds:
        config = Package.open(models[vocabulary].fp32).manifest.model
        layers = _output_layers(models[vocabulary])
        with players(_sides(models[vocabulary], workers), {}) as opened:
            for point in points:
                if (point.vocabulary, point.workers) == (vocabulary, workers):
                    found.append(_costs(opened, point) | floors(config, layers, point, peaks))
    names = list(dict.fromkeys(name for costs in found for name in costs))
    values = [getattr(point, axis) for point in points]
    return Curve(axis=axis, values=values, series={name: [costs.get(name) for costs in found] for name in names})


def _costs(opened: Sequence[Player], point: Point) -> dict[str, float]:
    turns = race(opened, point.work, REPEATS)
    return {
        name: Series([reading.cpu_seconds / reading.tokens * 1e6 for reading in readings]).median
        for name, readings in turns.readings.items()
    }


def _sides(models: Models, workers: int) -> list[Side]:
    setups = (Setup(workers),)
    sides = [Side(FP32, partial(Ours, models.fp32, "auto", workers))]
    if models.int8.exists():
        sides.append(Side(INT8, partial(Ours, models.int8, "auto", workers)))
    types: tuple[tuple[str, ComputeType], ...] = ((CT2_FP32, "float32"), (CT2_INT8, "int8"))
    for name, compute_type in types:
        sides.append(Side(name, partial(Ctranslate2, models.checkpoint, models.converted, compute_type, None, setups)))
    return sides


def _output_layers(models: Models) -> dict[Numbers, OutputLayer]:
    """Of the packages that there are."""
    folders: dict[Numbers, Path] = {"fp32": models.fp32, "int8": models.int8}
    found = dict[Numbers, OutputLayer]()
    for numbers, folder in folders.items():
        if folder.exists():
            package = Package.open(folder)
            found[numbers] = output_layer(package, numbers, "required" if package.manifest.graphs.native else "off")
    return found


def floors(config: ModelShape, layers: Mapping[Numbers, OutputLayer], point: Point, peaks: Peaks) -> dict[str, float]:
    """Of a token, by what the numbers are: its share of a step in the middle of the target, and of the encoding.

    layers: what a package of these numbers reads of its output layer
    """
    found = {}
    for numbers, output in layers.items():
        rows = point.rows * point.beams
        step = step_cost(config, rows, point.source, point.target // 2, numbers, output).floor_s(peaks)
        encoding = encoding_cost(config, point.source, numbers).floor_s(peaks)
        found[f"floor {numbers}"] = (step / point.rows + encoding / point.target) * 1e6
    return found
