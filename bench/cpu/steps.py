"""A decoder step by itself, from token ids to candidates, as a running batch takes it, and its floor."""

from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir
from pydantic import BaseModel

from bench.cpu.races import CLOSED
from bench.machine.peak import Numbers, OutputLayer, Peaks, measure_peaks, step_cost
from bench.measure import Series, seconds
from bench.pages.markdown import table
from engine.decoder import Ask
from engine.devices.session import CPU
from engine.loading.load import Kernels, Loadable, open_decoder
from kernels.library import open_library
from models.package.folder import Package

ROWS = (1, 8, 32)
SOURCE_TOKENS, TARGET_TOKENS = 28, 16
"""Of the rows whose steps are measured: in the middle of a sentence of FLORES."""
READINGS = 40
TOKEN = 7
COARSE_QUERY, COARSE_KEY = 6, 7
"""Inputs of BestTokens, see kernels/README.md."""
TAKE_NIBBLES = ("amx", "avx512vnni")
"""Instruction sets with which two numbers of a key share a byte (`takes_nibbles` in kernels/src/isa)."""
SCREENED_LEAST = 18
"""Tokens of a row that a screened graph of standard operators computes where one is wanted: see decision 22."""
COARSE_LEAST = 16
"""Tokens of a row that it computes at least behind a coarse look (`least_computed` in kernels/src/compute/coarse.h)."""


def step_seconds(package: Package, kernels: Kernels, rows: Sequence[int], source: int, target: int) -> dict[int, float]:
    """The median of some steps about position `target` of sources of so many tokens, for several numbers of rows."""
    decoder = open_decoder(Loadable.of(package), CPU, kernels=kernels)
    end = package.manifest.graphs.vocabulary.end_id
    found = {}
    for count in rows:
        cache = decoder.open_cache(count)
        for encoded in decoder.encode([(*[TOKEN] * (source - 1), end)] * count):
            cache.join(encoded)

        def step(cache=cache, count=count) -> None:  # type: ignore[no-untyped-def]
            cache.begin_step([TOKEN] * count, Ask())
            cache.end_step()

        for _ in range(max(1, target - READINGS // 2)):
            step()
        found[count] = Series([seconds(step) for _ in range(READINGS)]).median
    return found


def output_layer(package: Package, numbers: Numbers, kernels: Kernels) -> OutputLayer:
    """What a step reads of a package's output layer, by our own operators ("required") or standard ones."""
    spec = package.manifest.graphs
    if kernels == "off":
        screened = spec.output_layer == "screened"
        return OutputLayer("int8", computed=SCREENED_LEAST) if screened else OutputLayer(numbers)
    assert spec.native is not None and spec.native.decoder is not None, "a package that has run so has native graphs"
    graph = ir.load(package.folder / spec.native.decoder.file).graph
    [best] = [node for node in graph if node.op_type == "BestTokens"]
    if len(best.inputs) <= COARSE_KEY:
        return OutputLayer("int8", computed=1, stored=numbers)
    query, key = (value.shape for value in best.inputs[COARSE_QUERY : COARSE_KEY + 1] if value is not None)
    assert query is not None and key is not None
    halved = best.attributes.get_int("key_bits", 8) == 4 and open_library().isa in TAKE_NIBBLES
    return OutputLayer("int8", key.numpy()[0], query.numpy()[0], COARSE_LEAST, numbers, halved)


class Step(BaseModel):
    """A step of so many rows and its floor."""

    model_config = CLOSED

    name: str
    rows: int
    seconds: float
    floor_s: float


class Floor(BaseModel):
    """What was measured."""

    model_config = CLOSED

    peaks: Peaks
    steps: list[Step]

    def joined(self, other: "Floor") -> "Floor":
        """Both as one: the same machine's steps of other packages."""
        return Floor(peaks=self.peaks, steps=[*self.steps, *other.steps])


def measure(packages: Sequence[tuple[str, Path, Numbers, Kernels]]) -> Floor:
    """The peaks, and steps of packages: name, folder, numbers of their matrices, and how they run.

    A package that cannot run so is left out.
    """
    peaks, steps = measure_peaks(), []
    for name, folder, numbers, kernels in packages:
        try:
            package = Package.open(folder)
            taken = step_seconds(package, kernels, ROWS, SOURCE_TOKENS, TARGET_TOKENS)
        except Exception as error:  # the report says what is there; the races say why something is not
            print(f"{name}: {error}")
            continue
        output = output_layer(package, numbers, kernels)
        for rows, median in taken.items():
            cost = step_cost(package.manifest.model, rows, SOURCE_TOKENS, TARGET_TOKENS, numbers, output)
            steps.append(Step(name=name, rows=rows, seconds=median, floor_s=cost.floor_s(peaks)))
    return Floor(peaks=peaks, steps=steps)


def show(floor: Floor) -> str:
    """The tables."""
    peaks = floor.peaks
    facts = [
        ["multiply-adds of u8 and s8", f"{peaks.int8 / 1e9:.0f} G/s ({peaks.int8_by})"],
        ["fused multiply-adds of fp32", f"{peaks.fp32 / 1e9:.0f} G/s"],
        *([f"reading {size / 2**20:g} MB", f"{speed / 1e9:.1f} GB/s"] for size, speed in sorted(peaks.read.items())),
    ]
    rows = [
        [
            step.name,
            str(step.rows),
            f"{step.seconds * 1e6:.0f}",
            f"{step.floor_s * 1e6:.0f}",
            f"{step.seconds / step.floor_s:.2f} x",
        ]
        for step in floor.steps
    ]
    return "\n\n".join(
        [table(["one core", ""], facts), table(["decoder step of", "rows", "us", "floor, us", "over the floor"], rows)]
    )
