"""How sides are compared."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """One side's readings, in the order they were taken."""

    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


def alternate(sides: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, Series]:
    """Runs every side once to warm up and then `repeats` times, changing sides after every run.

    The order is reversed every time, so that a drift of the machine hits all sides alike.
    """
    for side in sides.values():
        side()
    readings: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats):
        for name in list(sides)[:: 1 if repeat % 2 == 0 else -1]:
            readings[name].append(sides[name]())
    return {name: Series(values) for name, values in readings.items()}


def seconds(work: Callable[[], object]) -> float:
    """How long it takes, by the clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def processor_seconds(work: Callable[[], object]) -> float:
    """How long this process computes for it, on whatever cores: what a busy machine changes least."""
    started = time.process_time()
    work()
    return time.process_time() - started


def percentile(values: list[float], percent: int) -> float:
    """The smallest value that `percent` % of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
