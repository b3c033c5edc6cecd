"""What steps cost on machines that were measured: each figure with the run that it is from.

A simulated step costs `fixed + each * rows`. The line is the one whose relative errors are least, in squares, and
`worst` says how far it is from what was measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.queueing.cost import Measured

TOKENS = 32
"""Of the sources and targets that GPUs were measured with."""
ENCODED = 256 * 30
"""Source tokens of the run of the encoder on GPUs whose time counts."""


@dataclass(frozen=True)
class Machine:
    """A kind of replica."""

    source: str
    """Where the figures are, in bench/results."""
    what: str
    workers: int
    steps: Mapping[int, Sequence[tuple[int, float]]]
    """By beams: sentences of a worker's batch, and milliseconds of a step."""
    token_ms: float
    """Of the encoder, for a source token. 0: it is in the steps."""

    def most_rows(self, beams: int) -> int:
        """The most that were measured: beyond, a line knows nothing."""
        return beams * max(sentences for sentences, _ in self.steps[beams])

    def measured(self, beams: int) -> Measured:
        """What the simulation is told. Beams are those of one of `steps`."""
        rows, ms = self._points(beams)
        weighed = np.stack([1 / ms, rows / ms], axis=1)
        (fixed, each), *_ = np.linalg.lstsq(weighed, np.ones(len(rows)), rcond=None)
        return Measured(float(fixed) / 1000, float(each) / 1000, self.token_ms / 1000)

    def worst(self, beams: int) -> float:
        """Largest relative error of that line."""
        rows, ms = self._points(beams)
        line = self.measured(beams)
        return float(np.abs(1000 * (line.fixed + line.each * rows) / ms - 1).max())

    def _points(self, beams: int) -> tuple[np.ndarray, np.ndarray]:
        sentences, ms = np.array(self.steps[beams]).T
        return beams * sentences, ms


def on_cpu(sentences_and_rates: Sequence[tuple[int, float]], workers: int) -> Sequence[tuple[int, float]]:
    """From target tokens a second of all workers: a step gives each sentence one."""
    return [(sentences, 1000 * workers * sentences / rate) for sentences, rate in sentences_and_rates]


def on_gpu(batches: Sequence[tuple[int, float]], token_ms: float) -> Sequence[tuple[int, float]]:
    """From milliseconds of a batch, from its texts to its last tokens: the encoder's part is taken off."""
    return [(sentences, ms / TOKENS - token_ms * sentences) for sentences, ms in batches]


H100_TOKEN_MS, H200_TOKEN_MS = 3.15 / ENCODED, 6.47 / ENCODED
"""The second one of the first encoder for GPUs, which was timed on an H100 only (docs/cuda.md)."""

MACHINES = {
    "epyc": Machine(
        "2026-11-25-amd-epyc.md",
        "int8, base size, two workers of one core each, AVX-512 VNNI",
        2,
        {
            1: on_cpu([(1, 4008), (8, 11639), (32, 13011)], 2),
            4: on_cpu([(1, 2981), (8, 3587), (32, 4341)], 2),
        },
        0.0,
    ),
    "h100": Machine(
        "gpu/2026-11-27-nvidia-h100-check.md",
        "fp16, base size, the step of our own operators",
        1,
        {
            1: on_gpu([(1, 7.555), (32, 14.07), (256, 39.87)], H100_TOKEN_MS),
            4: on_gpu([(1, 17.24), (32, 53.39), (256, 213.1)], H100_TOKEN_MS),
        },
        H100_TOKEN_MS,
    ),
    "h200": Machine(
        "gpu/2026-11-26-nvidia-h200-check.md",
        "fp16, base size, the first step for GPUs",
        1,
        {
            1: on_gpu([(1, 12.9), (8, 15.0), (32, 16.16), (128, 31.94), (256, 49.58)], H200_TOKEN_MS),
            4: on_gpu([(1, 27.33), (8, 50.67), (32, 62.83), (128, 109.9), (256, 182.7)], H200_TOKEN_MS),
        },
        H200_TOKEN_MS,
    ),
}
