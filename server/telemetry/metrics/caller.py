"""What callers ask for, each by name. docs/metrics.md says what each metric is good for.

Only callers whom the server was told of have a label of their own, and only so many of them: there may be any number of
hosts.
"""

from collections.abc import Iterable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge

MOST_CALLERS = 16
OTHER = "other"
"""The label of everybody else."""
QUOTAS = ("texts_per_s", "cost_per_s", "calls")


class CallerMetrics:
    """Used on the event loop, but for `know`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers every metric."""
        self._known: set[str] = set()
        texts = Counter("dragoman_caller_texts", "Texts that were let in.", ["caller"], registry=registry)
        cost = Counter(
            "dragoman_caller_cost_seconds",
            "Seconds of a worker that they were expected to take.",
            ["caller"],
            registry=registry,
        )
        calls = Gauge("dragoman_caller_calls", "Calls that are under way.", ["caller"], registry=registry)
        refused = Counter(
            "dragoman_caller_refusals", "Calls over a quota of their caller.", ["caller", "quota"], registry=registry
        )
        # Looking labels up takes longer than counting.
        self._asked = cache(lambda label: (texts.labels(label), cost.labels(label)))
        self._calls, self._refused = cache(calls.labels), cache(refused.labels)
        self._begin(OTHER)

    def know(self, names: Iterable[str]) -> None:
        """Gives these callers a label, as far as there are any left. One that was given stays."""
        for name in names:
            if len(self._known) < MOST_CALLERS:
                self._known.add(name)
                self._begin(name)

    def running(self, caller: str, more: int) -> None:
        """So many more calls are under way."""
        self._calls(self._label(caller)).inc(more)

    def took(self, caller: str, texts: int, cost: float) -> None:
        """The caller was let in with so much."""
        counted, seconds = self._asked(self._label(caller))
        counted.inc(texts)
        seconds.inc(cost)

    def refused(self, caller: str, quota: str) -> None:
        """The caller asked for more than it may."""
        self._refused(self._label(caller), quota).inc()

    def _begin(self, label: str) -> None:
        """Counts from zero: what begins with its first event has no rate at that event."""
        self._asked(label)
        self._calls(label)
        for quota in QUOTAS:
            self._refused(label, quota)

    def _label(self, caller: str) -> str:
        return caller if caller in self._known else OTHER
