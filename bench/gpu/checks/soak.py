"""Part `soak`: sentences of random lengths, greedy and beam, for minutes. Does memory grow?"""

import random
import time
from collections.abc import Iterator, Sequence

from bench.gpu import sources
from bench.gpu.machine import memory_mb, resident_mb
from bench.gpu.plan import SOAK_STARTS_S, Findings, Plan
from bench.gpu.sides.ours import Ours

SEED = 3
SAMPLES = 60
"""Readings of memory in the whole time."""
SETTLING = 4
"""The first quarter of the time does not count: buffers still grow to what the longest sentences need."""


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields the slope of memory over time, again and again until time is up."""
    longest, soak_s = plan.sizes.memory_tokens, min(plan.soak_s, plan.part_s - SOAK_STARTS_S)
    ours, draw = Ours(plan, "base", "fp16", longest), random.Random(SEED)
    started = time.monotonic()
    samples: list[tuple[float, float, float]] = []
    batches = 0
    with ours.engine(plan.sizes.soak_rows) as engine:
        while (elapsed := time.monotonic() - started) < soak_s:
            rows = draw.randint(1, plan.sizes.soak_rows)
            given = sources.of_lengths(ours.config, [draw.randint(1, longest) for _ in range(rows)], draw)
            engine.translate(given, draw.choice((1, 4)), draw.randint(1, longest))
            batches += 1
            if elapsed >= len(samples) * soak_s / SAMPLES:
                samples.append((time.monotonic() - started, memory_mb(plan), resident_mb()))
                yield "soak", summary(samples, batches, soak_s)
    yield "soak", summary(samples, batches, soak_s)


def summary(samples: Sequence[tuple[float, float, float]], batches: int, soak_s: float) -> Findings:
    """samples: seconds since the start, megabytes of the device, megabytes of the host."""
    settled = [sample for sample in samples if sample[0] >= soak_s / SETTLING]
    seconds, device, host = (list(values) for values in zip(*samples, strict=True))
    return {
        "seconds": seconds[-1],
        "batches": batches,
        "device_mb": [min(device), max(device)],
        "device_mb_per_minute": slope([(at, mb) for at, mb, _ in settled]) * 60,
        "host_mb": [min(host), max(host)],
        "host_mb_per_minute": slope([(at, mb) for at, _, mb in settled]) * 60,
    }


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line through the points with the least squares. 0 where there are too few."""
    if len(points) < 2:
        return 0.0
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
