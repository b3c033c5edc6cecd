"""Every metric of the server. docs/metrics.md says what each is good for.

Names follow Prometheus: base units, `_total` for counters. Labels are bounded: nothing that a caller chooses.
"""

from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from server.request import FinishReason, Timings

LATENCY_SECONDS: Sequence[float] = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.35, 0.5, 0.75),
    *(1, 2, 5, 10, 20, 30, 60),
)
"""From a refusal, which costs half a millisecond, to 60 s, the longest deadline that makes sense for a text. Densest
between 20 ms and 1 s, where sentences of small and base-size models end."""

PHASE_SECONDS: Sequence[float] = (0.000025, 0.00005, 0.0001, 0.00025, *LATENCY_SECONDS)
"""As above, and from 25 us: a short text is tokenised in less than 50 us."""

TOKEN_SECONDS: Sequence[float] = (
    *(0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075),
    *(0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 1),
)
"""A step of a small model takes less than a millisecond at one row, and some ten at 64 rows of a base-size one."""

STEP_ROWS: Sequence[float] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""A step's cost per row falls steeply up to some 16 rows, so the small counts are told apart."""


class Metrics:
    """What the server counts. Every method may be called from any thread and takes some microseconds."""

    def __init__(self, registry: CollectorRegistry, model: str = "default") -> None:
        """Registers every metric; `model` is the label of those that belong to a model."""
        self._registry = registry
        self._model = model
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which Prometheus ignores
        ProcessCollector(registry=registry)
        self._define_rpc_metrics()
        self._define_request_metrics()
        self._define_step_metrics()
        self._define_row_metrics()
        self._define_device_metrics()

    def _define_rpc_metrics(self) -> None:
        self._rpc_requests = Counter(
            "dragoman_rpc_requests", "RPCs answered.", ["method", "code"], registry=self._registry
        )
        self._rpc_seconds = Histogram(
            "dragoman_rpc_duration_seconds",
            "From the arrival of an RPC's request to its last response.",
            ["method"],
            registry=self._registry,
            buckets=LATENCY_SECONDS,
        )
        self._rpc_in_flight = Gauge(
            "dragoman_rpc_in_flight", "RPCs that are being answered.", ["method"], registry=self._registry
        )
        self._refusals = Counter(
            "dragoman_refusals", "RPCs answered with an error, by its reason.", ["reason"], registry=self._registry
        )

    def _define_request_metrics(self) -> None:
        phases = Histogram(
            "dragoman_phase_duration_seconds",
            "Time of one content in each phase of its way.",
            ["model", "phase"],
            registry=self._registry,
            buckets=PHASE_SECONDS,
        )
        self._queue, self._tokenize, self._encode, self._decode, self._detokenize = (
            phases.labels(self._model, phase) for phase in ("queue", "tokenize", "encode", "decode", "detokenize")
        )
        self._first_token = self._histogram(
            "dragoman_time_to_first_token_seconds",
            "From the arrival of a content in the queue to its first target token.",
            LATENCY_SECONDS,
        )
        self._source_tokens = self._counter("dragoman_source_tokens", "Source tokens of answered contents.")
        self._target_tokens = self._counter("dragoman_target_tokens", "Target tokens of the best hypotheses.")
        finished = Counter(
            "dragoman_finished",
            "Translated contents, by the reason why the best hypothesis ended.",
            ["model", "reason"],
            registry=self._registry,
        )
        self._finished = {reason: finished.labels(self._model, reason.value) for reason in FinishReason}
        self._cancellations = self._counter(
            "dragoman_cancellations", "Contents dropped because nobody waited for them any more."
        )

    def _define_step_metrics(self) -> None:
        self._token_seconds = self._histogram(
            "dragoman_inter_token_seconds",
            "From one token of a row to its next, once for each step.",
            TOKEN_SECONDS,
        )
        self._step_rows = self._histogram("dragoman_step_rows", "Rows of a decoder step.", STEP_ROWS)
        self._steps = self._counter("dragoman_steps", "Decoder steps.")
        self._rows = self._counter("dragoman_rows_computed", "Rows of all decoder steps.")
        self._moved = self._counter("dragoman_cache_rows_moved", "Cache rows copied to reorder beams or close gaps.")
        seconds = Counter(
            "dragoman_step_seconds",
            "Time of all decoder steps, inside (model) and outside (engine) ONNX Runtime.",
            ["model", "part"],
            registry=self._registry,
        )
        self._model_seconds, self._engine_seconds = (seconds.labels(self._model, part) for part in ("model", "engine"))

    def _define_row_metrics(self) -> None:
        self._live = Gauge(
            "dragoman_rows_live", "Rows in use after the last step.", ["model", "worker"], registry=self._registry
        )
        self._capacity = self._gauge("dragoman_rows_capacity", "Rows of all workers.")
        self._waiting = self._gauge("dragoman_requests_waiting", "Contents in the queue.")

    def _define_device_metrics(self) -> None:
        self._cuda_graphs = self._gauge("dragoman_cuda_graphs", "1 if a decoder step is one launch of a CUDA graph.")
        self._probe_seconds = self._gauge("dragoman_probe_seconds", "Time of the decode before the server was ready.")

    def describe_build(self, versions: dict[str, str]) -> None:
        """Tells what the server is made of: name -> version."""
        Info("dragoman_build", "Versions of the server and of what it runs on.", registry=self._registry).info(versions)

    def describe_model(self, package_sha256: str, provider: str, precision: str) -> None:
        """Tells what is served, and by which ONNX Runtime execution provider."""
        info = Info("dragoman_model", "The model that is served.", ["model"], registry=self._registry)
        facts = {"package_sha256": package_sha256, "provider": provider, "precision": precision}
        info.labels(self._model).info(facts)

    def describe_device(self, facts: dict[str, str], cuda_graphs: bool) -> None:
        """Tells where the model runs: facts by name. `cuda_graphs`: whether a step is launched as one."""
        Info("dragoman_device", "The device that the model runs on.", registry=self._registry).info(facts)
        self._cuda_graphs.set(cuda_graphs)

    def probed(self, seconds: float) -> None:
        """The decoder has shown that it decodes, in so long."""
        self._probe_seconds.set(seconds)

    def rpc_started(self, method: str) -> None:
        """An RPC has come. `method` is one of the API's, never a caller's string."""
        self._rpc_in_flight.labels(method).inc()

    def rpc_finished(self, method: str, code: str, seconds: float) -> None:
        """An RPC is answered, with the name of a gRPC status code."""
        self._rpc_in_flight.labels(method).dec()
        self._rpc_requests.labels(method, code).inc()
        self._rpc_seconds.labels(method).observe(seconds)

    def refused(self, reason: str) -> None:
        """An RPC is answered with an error of `server.errors`."""
        self._refusals.labels(reason).inc()

    def tokenized(self, seconds: float) -> None:
        """A content became source tokens."""
        self._tokenize.observe(seconds)

    def detokenized(self, seconds: float) -> None:
        """A content's hypotheses became text."""
        self._detokenize.observe(seconds)

    def first_token(self, seconds: float) -> None:
        """A content has its first target token, so long after it arrived."""
        self._first_token.observe(seconds)

    def finished(self, reason: FinishReason, timings: Timings, source_tokens: int, target_tokens: int) -> None:
        """A content is translated. Reason and target tokens are the best hypothesis's."""
        self._observe_engine_phases(timings, source_tokens)
        self._decode.observe(timings.decode)
        self._target_tokens.inc(target_tokens)
        self._finished[reason].inc()

    def encoded(self, timings: Timings, source_tokens: int) -> None:
        """A content is encoded into a vector."""
        self._observe_engine_phases(timings, source_tokens)

    def cancelled(self) -> None:
        """A content is dropped because nobody waits for it any more."""
        self._cancellations.inc()

    def step(self, rows: int, seconds: float, model_seconds: float) -> None:
        """A worker has decoded one token of each of so many rows; `model_seconds` of its `seconds` in the model."""
        self._step_rows.observe(rows)
        self._steps.inc()
        self._rows.inc(rows)
        self._model_seconds.inc(model_seconds)
        self._engine_seconds.inc(seconds - model_seconds)

    def inter_token(self, seconds: float) -> None:
        """Rows that stay in a batch got their next token so long after the one before."""
        self._token_seconds.observe(seconds)

    def moved_rows(self, rows: int) -> None:
        """So many cache rows were copied."""
        self._moved.inc(rows)

    def live_rows(self, worker: int, rows: int) -> None:
        """A worker has so many rows in use."""
        self._live.labels(self._model, worker).set(rows)

    def capacity(self, rows: int) -> None:
        """All workers together have so many rows."""
        self._capacity.set(rows)

    def waiting(self, requests: int) -> None:
        """So many contents are in the queue."""
        self._waiting.set(requests)

    def _observe_engine_phases(self, timings: Timings, source_tokens: int) -> None:
        self._queue.observe(timings.queue)
        self._encode.observe(timings.encode)
        self._source_tokens.inc(source_tokens)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(name, meaning, ["model"], registry=self._registry).labels(self._model)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, ["model"], registry=self._registry).labels(self._model)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, meaning, ["model"], registry=self._registry, buckets=buckets).labels(self._model)
