"""How many replicas there are: by how long texts wait, as the engine's own metrics tell it."""

import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

QUEUE_S = "queue_s"
"""What each replica reports."""
MOST_GROWTH = 2.0
"""So many times the replicas there are, at most, at a time: what is loading takes nothing off the queue yet."""
QUIET = 0.25
"""Share of the wanted time below which there is a replica too many."""


class QueueTime:
    """Mean time in the queue of the texts that were answered since it was asked for last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at, self._sum, self._count = clock(), 0.0, 0.0

    def seconds(self, registries: Iterable[CollectorRegistry]) -> float:
        """Of all of them. Texts that wait while none is answered have waited for the whole time."""
        now, all_of_them = self._clock(), list(registries)
        of = {"phase": "queue"}
        total = _sum("dragoman_phase_duration_seconds_sum", of, all_of_them)
        count = _sum("dragoman_phase_duration_seconds_count", of, all_of_them)
        if count > self._count:
            seconds = (total - self._sum) / (count - self._count)
        elif _sum("dragoman_requests_waiting", {}, all_of_them):
            return now - self._at
        else:
            seconds = 0.0
        self._at, self._sum, self._count = now, total, count
        return max(0.0, seconds)


def _sum(name: str, labels: dict[str, str], registries: Iterable[CollectorRegistry]) -> float:
    """Of the samples of all models."""
    return sum(
        sample.value
        for registry in registries
        for family in registry.restricted_registry([name]).collect()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


class QueueTimePolicy:
    """More replicas while texts wait for longer than wanted, one less when they hardly do.

    Ray Serve asks it all the time, and does what it says when it has said so for `upscale_delay_s` or
    `downscale_delay_s`, within the bounds of the deployment.
    """

    def __init__(self, target_s: float) -> None:
        """target_s: what mean time in the queue is wanted, at most."""
        self._target_s = target_s

    def __call__(self, context: "AutoscalingContext") -> tuple[int | float, dict[str, Any]]:
        replicas = context.target_num_replicas
        reported = list((context.aggregated_metrics or {}).get(QUEUE_S, {}).values())
        return self.wanted(replicas, reported), {}

    def wanted(self, replicas: int, reported: list[float]) -> int:
        """reported: seconds, by replicas that have said so. None have where all of them are loading."""
        if not reported:
            return replicas
        pressure = sum(reported) / len(reported) / self._target_s
        if pressure > 1:
            return math.ceil(replicas * min(pressure, MOST_GROWTH))
        return max(1, replicas - 1) if pressure < QUIET else replicas
