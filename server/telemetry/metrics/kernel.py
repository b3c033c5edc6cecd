"""What our own operators count, read when somebody scrapes. docs/metrics.md says what each is good for.

They count for the process: which model's they are, none of them knows.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from kernels.library import Counters

ROWS = ("screened", "whole")


class KernelFamilies(Collector):
    """The families of all models together that such operators run, or screened graphs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers every metric."""
        self._readers: list[Callable[[], Counters]] = []
        """Also of models that served before: what was counted stays counted."""
        registry.register(self)

    def watch(self, read: Callable[[], Counters]) -> None:
        """Adds what such operators count. `read` is called at every scrape, on its thread; models may have the same."""
        if read not in self._readers:
            self._readers.append(read)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """One sample of each series."""
        rows = CounterMetricFamily(
            "dragoman_output_rows", "Rows of the output layer, by how they were computed.", labels=["kind"]
        )
        saturated = CounterMetricFamily(
            "dragoman_saturated_values", "Values beyond the range that they were calibrated for."
        )
        if counters := [read() for read in self._readers]:
            whole = sum(each.whole_rows for each in counters)
            for kind, count in zip(ROWS, (sum(each.rows for each in counters) - whole, whole), strict=True):
                rows.add_metric([kind], count)
            saturated.add_metric([], sum(each.saturated for each in counters))
        yield rows
        yield saturated
