"""Histograms of what every call counts several times.

That of `prometheus_client` looks at one bucket after another and takes a lock for each number that it changes: with
eight of its values a call, a twentieth of all that the interpreter does for one.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString


class Histogram(Collector):
    """A family of them."""

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str], bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        """Registers it. labels: their names. bounds: of the buckets, upwards and without infinity."""
        self._name, self._meaning, self._labels, self._bounds = name, meaning, labels, bounds
        self._series: dict[tuple[str, ...], Series] = {}
        registry.register(self)

    def labels(self, *values: str) -> "Series":
        """The one with these values of the labels. Whoever counts often keeps it."""
        return self._series.setdefault(values, Series(self._bounds))

    def collect(self) -> Iterator[Metric]:
        """As they are now."""
        family = HistogramMetricFamily(self._name, self._meaning, labels=self._labels)
        for values, series in list(self._series.items()):
            series.add_to(family, values)
        yield family


class Series:
    """One of them. Any thread may count."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._lock = bounds, Lock()
        self._counts, self._sum = [0] * (len(bounds) + 1), 0.0
        self._exemplars: dict[int, Exemplar] = {}
        """The newest of each bucket."""

    def observe(self, value: float, trace_id: str = "") -> None:
        """Counts a value. trace_id: what OpenMetrics shows beside its bucket. Empty: nothing."""
        bucket = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[bucket] += 1
            self._sum += value
            if trace_id:
                self._exemplars[bucket] = Exemplar({"trace_id": trace_id}, value, time.time())

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Adds it to a family."""
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        with self._lock:
            counts, total, exemplars = [*accumulate(self._counts)], self._sum, dict(self._exemplars)
        buckets = [
            (name, counted, exemplars[bucket]) if bucket in exemplars else (name, counted)
            for bucket, (name, counted) in enumerate(zip(names, counts, strict=True))
        ]
        family.add_metric(labels, buckets, total)
