"""What our own operators count, read when somebody scrapes. docs/metrics.md says what each is good for."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from kernels.library import Counters

ROWS = ("screened", "whole")


class KernelFamilies(Collector):
    """The families of all models that such operators run."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers every metric."""
        self._readers: dict[str, Callable[[], Counters]] = {}
        registry.register(self)

    def watch(self, model: str, read: Callable[[], Counters]) -> None:
        """Shows what a model's operators count. `read` is called at every scrape, on its thread."""
        self._readers[model] = read

    def forget(self, model: str) -> None:
        """None of its operators are ours."""
        self._readers.pop(model, None)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """One sample of each series."""
        rows = CounterMetricFamily(
            "dragoman_output_rows", "Rows of the output layer, by how they were computed.", labels=["model", "kind"]
        )
        saturated = CounterMetricFamily(
            "dragoman_saturated_values", "Values beyond the range that they were calibrated for.", labels=["model"]
        )
        for model, read in self._readers.items():
            counters = read()
            for kind, count in zip(ROWS, (counters.rows - counters.whole_rows, counters.whole_rows), strict=True):
                rows.add_metric([model, kind], count)
            saturated.add_metric([model], counters.saturated)
        yield rows
        yield saturated
