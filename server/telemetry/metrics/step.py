"""What the engines count: rows, steps, and what of them was for nothing. docs/metrics.md says what each is good for.

A step may take a tenth of a millisecond, so that counting it must cost next to nothing: a worker counts in numbers of
its own, which nobody else writes, and the families are made of them when they are scraped.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

TOKEN_SECONDS: Sequence[float] = (
    *(0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075),
    *(0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 1, 5),
)
"""A step of a small model takes less than a millisecond at one row, and some ten at 64 rows of a base-size one. One of
a large model on a CPU that others use may take seconds."""

STEP_ROWS: Sequence[float] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 4096)
"""A step's cost per row falls steeply up to some 16 rows, so the small counts are told apart. The last is the most that
`--max-rows` may be."""


Read = Callable[["WorkerMetrics"], float]
"""One of a worker's numbers."""


class Tally:
    """A histogram with one writer."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def __neg__(self) -> "Tally":
        """What takes this one away from a sum."""
        negative = Tally(self._bounds)
        negative._counts, negative._sum = [-count for count in self._counts], -self._sum
        return negative

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def add_to(self, family: HistogramMetricFamily, others: Sequence["Tally"], labels: Sequence[str]) -> None:
        """Adds a metric to a family, of this tally and others with the same bounds."""
        counts = accumulate(map(sum, zip(self._counts, *(other._counts for other in others), strict=True)))
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        total = self._sum + sum(other._sum for other in others)
        family.add_metric(labels, list(zip(names, counts, strict=True)), total)


class WorkerMetrics:
    """What one running batch counts. Only its thread writes."""

    def __init__(self) -> None:
        """A worker that is ready: it holds nothing."""
        self.inter_token_seconds, self.step_rows = Tally(TOKEN_SECONDS), Tally(STEP_ROWS)
        self.made = self.rows = self.moved_rows = self.moved_bytes = 0
        self.model_seconds = self.engine_seconds = 0.0
        self.hypotheses = self.cancelled = self.failed_rows = 0
        self.source_tokens, self.padding_tokens = 0, 0.0
        self.live = self.held = 0
        self.last_step = time.time()

    def encoded(self, source_tokens: int, computed_tokens: float) -> None:
        """The encoder has computed so many tokens for sources of so many."""
        self.source_tokens += source_tokens
        self.padding_tokens += computed_tokens - source_tokens

    def steps(self, made: int, rows: int, seconds: float, model_seconds: float) -> None:
        """So many times one token of each of so many rows is decoded.

        `model_seconds` of the `seconds` of all these steps were spent in the model.
        """
        self.step_rows.observe(rows, made)
        self.made += made
        self.rows += made * rows
        self.model_seconds += model_seconds
        self.engine_seconds += seconds - model_seconds
        self.last_step = time.time()

    def inter_token(self, seconds: float, steps: int) -> None:
        """Rows that stay in a batch got so many tokens, each so long after the one before."""
        self.inter_token_seconds.observe(seconds, steps)

    def holds(self, rows: int, tokens: int) -> None:
        """So many rows are in use, and hold so many source and target tokens."""
        self.live, self.held = rows, tokens

    def moved(self, rows: int, size_bytes: int) -> None:
        """So many cache rows were copied."""
        self.moved_rows += rows
        self.moved_bytes += size_bytes

    def answered(self, computed_rows: int, best_rows: int) -> None:
        """So many rows were computed for an answer, and so many of them for its best hypothesis."""
        self.hypotheses += computed_rows - best_rows

    def dropped(self, computed_rows: int) -> None:
        """So many rows were computed for a content that nobody waited for any more."""
        self.cancelled += computed_rows

    def failed(self, computed_rows: int) -> None:
        """So many rows were computed for contents that are tried again, or refused: the worker has failed."""
        self.failed_rows += computed_rows

    def __neg__(self) -> "WorkerMetrics":
        """What takes all that was counted so far away from a sum."""
        negative = WorkerMetrics()
        for name, counted in vars(self).items():
            setattr(negative, name, -counted)
        return negative


class StepFamilies(Collector):
    """The families that the workers of all models share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers every metric."""
        self._workers: dict[str, dict[int, WorkerMetrics]] = {}
        """By model and number."""
        self._former: dict[str, list[WorkerMetrics]] = {}
        """Of versions that served before: what they have counted stays counted. And what those that serve had counted
        before they did, to be taken away. They take a kilobyte each."""
        self.rows_capacity, self.tokens_capacity = (
            Gauge(name, meaning, ["model"], registry=registry)
            for name, meaning in (
                ("dragoman_rows_capacity", "Rows of all workers."),
                ("dragoman_cache_tokens_capacity", "Tokens that the rows of all workers can hold."),
            )
        )
        registry.register(self)

    def show(self, model: str, workers: dict[int, WorkerMetrics]) -> None:
        """These count from now on, and from zero. One that is added later is shown, too."""
        before = [-worker for worker in workers.values()]
        self._former.setdefault(model, []).extend([*self._workers.get(model, {}).values(), *before])
        self._workers[model] = workers

    def collect(self) -> Iterator[Metric]:
        """As they are now."""
        yield self._histogram(
            "dragoman_inter_token_seconds",
            "From one token of a row to its next, once for each step.",
            lambda worker: worker.inter_token_seconds,
        )
        yield self._histogram("dragoman_step_rows", "Rows of a decoder step.", lambda worker: worker.step_rows)
        yield self._counter("dragoman_steps", "Decoder steps.", lambda worker: worker.made)
        yield self._counter("dragoman_rows_computed", "Rows of all decoder steps.", lambda worker: worker.rows)
        yield self._counters(
            "dragoman_step_seconds",
            "Time of all decoder steps, inside (model) and outside (engine) ONNX Runtime.",
            "part",
            {"model": lambda worker: worker.model_seconds, "engine": lambda worker: worker.engine_seconds},
        )
        yield self._counters(
            "dragoman_rows_wasted",
            "Rows of decoder steps that are in no best hypothesis.",
            "reason",
            {
                "hypotheses": lambda worker: worker.hypotheses,
                "cancelled": lambda worker: worker.cancelled,
                "failed": lambda worker: worker.failed_rows,
            },
        )
        yield self._counters(
            "dragoman_encoder_tokens",
            "Tokens that the encoder computed.",
            "kind",
            {"source": lambda worker: worker.source_tokens, "padding": lambda worker: worker.padding_tokens},
        )
        yield self._counter(
            "dragoman_cache_rows_moved",
            "Cache rows copied to reorder beams or close gaps.",
            lambda worker: worker.moved_rows,
        )
        yield self._counter(
            "dragoman_cache_moved_bytes", "Bytes of the cache rows that were copied.", lambda worker: worker.moved_bytes
        )
        yield self._gauge("dragoman_rows_live", "Rows in use after the last step.", lambda worker: worker.live)
        yield self._gauge(
            "dragoman_cache_tokens", "Tokens whose keys and values the live rows hold.", lambda worker: worker.held
        )
        yield self._gauge(
            "dragoman_last_step_timestamp_seconds",
            "When the last step ended, since the epoch.",
            lambda worker: worker.last_step,
        )

    def _counter(self, name: str, meaning: str, read: Read) -> Metric:
        family = CounterMetricFamily(name, meaning, labels=["model"])
        for model, workers in self._all():
            family.add_metric([model], sum(map(read, workers)))
        return family

    def _counters(self, name: str, meaning: str, label: str, reads: Mapping[str, Read]) -> Metric:
        family = CounterMetricFamily(name, meaning, labels=["model", label])
        for model, workers in self._all():
            for value, read in reads.items():
                family.add_metric([model, value], sum(map(read, workers)))
        return family

    def _gauge(self, name: str, meaning: str, read: Read) -> Metric:
        family = GaugeMetricFamily(name, meaning, labels=["model", "worker"])
        for model, workers in self._of_models():
            for number, worker in workers.items():
                family.add_metric([model, str(number)], read(worker))
        return family

    def _histogram(self, name: str, meaning: str, read: Callable[[WorkerMetrics], Tally]) -> Metric:
        family = HistogramMetricFamily(name, meaning, labels=["model"])
        for model, workers in self._all():
            first, *others = map(read, workers)
            first.add_to(family, others, [model])
        return family

    def _of_models(self) -> list[tuple[str, dict[int, WorkerMetrics]]]:
        """Those that serve. A copy: a worker of one more may come meanwhile."""
        return [(model, dict(workers)) for model, workers in list(self._workers.items()) if workers]

    def _all(self) -> list[tuple[str, list[WorkerMetrics]]]:
        """Those that served before, too."""
        return [(model, [*workers.values(), *self._former[model]]) for model, workers in self._of_models()]
