"""What the engines count: rows, steps, and what of them was for nothing. docs/metrics.md says what each is good for."""

import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

TOKEN_SECONDS: Sequence[float] = (
    *(0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075),
    *(0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 1),
)
"""A step of a small model takes less than a millisecond at one row, and some ten at 64 rows of a base-size one."""

STEP_ROWS: Sequence[float] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""A step's cost per row falls steeply up to some 16 rows, so the small counts are told apart."""

STEP_PARTS = ("model", "engine")
WASTE = ("hypotheses", "cancelled")
ENCODER_TOKENS = ("source", "padding")


class StepFamilies:
    """The families that the workers of all models share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers every metric."""
        self._registry = registry
        self.inter_token = self._histogram(
            "dragoman_inter_token_seconds", "From one token of a row to its next, once for each step.", TOKEN_SECONDS
        )
        self.step_rows = self._histogram("dragoman_step_rows", "Rows of a decoder step.", STEP_ROWS)
        self.steps = self._counter("dragoman_steps", "Decoder steps.")
        self.rows = self._counter("dragoman_rows_computed", "Rows of all decoder steps.")
        self.step_seconds = self._counter(
            "dragoman_step_seconds",
            "Time of all decoder steps, inside (model) and outside (engine) ONNX Runtime.",
            "part",
        )
        self.wasted = self._counter(
            "dragoman_rows_wasted", "Rows of decoder steps that are in no best hypothesis.", "reason"
        )
        self.encoder_tokens = self._counter("dragoman_encoder_tokens", "Tokens that the encoder computed.", "kind")
        self.moved = self._counter("dragoman_cache_rows_moved", "Cache rows copied to reorder beams or close gaps.")
        self.moved_bytes = self._counter("dragoman_cache_moved_bytes", "Bytes of the cache rows that were copied.")
        self.live = self._gauge("dragoman_rows_live", "Rows in use after the last step.", "worker")
        self.held = self._gauge("dragoman_cache_tokens", "Tokens whose keys and values the live rows hold.", "worker")
        self.last_step = self._gauge(
            "dragoman_last_step_timestamp_seconds", "When the last step ended, since the epoch.", "worker"
        )
        self.rows_capacity = self._gauge("dragoman_rows_capacity", "Rows of all workers.")
        self.tokens_capacity = self._gauge(
            "dragoman_cache_tokens_capacity", "Tokens that the rows of all workers can hold."
        )

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, ["model", *labels], registry=self._registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, meaning, ["model", *labels], registry=self._registry)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, meaning, ["model"], registry=self._registry, buckets=buckets)


class WorkerMetrics:
    """What one running batch counts. Looking a label up takes longer than counting, so it is done once, here."""

    def __init__(self, families: StepFamilies, model: str, number: int) -> None:
        """A worker that is ready: it holds nothing."""
        self._inter_token, self._step_rows = (
            family.labels(model) for family in (families.inter_token, families.step_rows)
        )
        self._steps, self._rows, self._moved, self._moved_bytes = (
            family.labels(model) for family in (families.steps, families.rows, families.moved, families.moved_bytes)
        )
        self._model_seconds, self._engine_seconds = (families.step_seconds.labels(model, part) for part in STEP_PARTS)
        self._hypotheses, self._cancelled = (families.wasted.labels(model, reason) for reason in WASTE)
        self._source, self._padding = (families.encoder_tokens.labels(model, kind) for kind in ENCODER_TOKENS)
        self._live, self._held, self._last_step = (
            gauge.labels(model, number) for gauge in (families.live, families.held, families.last_step)
        )
        self._last_step.set(time.time())

    def encoded(self, source_tokens: int, computed_tokens: float) -> None:
        """The encoder has computed so many tokens for sources of so many."""
        self._source.inc(source_tokens)
        self._padding.inc(computed_tokens - source_tokens)

    def step(self, rows: int, seconds: float, model_seconds: float) -> None:
        """One token of each of so many rows is decoded; `model_seconds` of the `seconds` were spent in the model."""
        self._step_rows.observe(rows)
        self._steps.inc()
        self._rows.inc(rows)
        self._model_seconds.inc(model_seconds)
        self._engine_seconds.inc(seconds - model_seconds)
        self._last_step.set(time.time())

    def inter_token(self, seconds: float) -> None:
        """Rows that stay in a batch got their next token so long after the one before."""
        self._inter_token.observe(seconds)

    def holds(self, rows: int, tokens: int) -> None:
        """So many rows are in use, and hold so many source and target tokens."""
        self._live.set(rows)
        self._held.set(tokens)

    def moved(self, rows: int, size_bytes: int) -> None:
        """So many cache rows were copied."""
        self._moved.inc(rows)
        self._moved_bytes.inc(size_bytes)

    def answered(self, computed_rows: int, best_rows: int) -> None:
        """So many rows were computed for an answer, and so many of them for its best hypothesis."""
        self._hypotheses.inc(computed_rows - best_rows)

    def dropped(self, computed_rows: int) -> None:
        """So many rows were computed for a content that nobody waited for any more."""
        self._cancelled.inc(computed_rows)
