"""What calls and their contents count. docs/metrics.md says what each is good for.

What engines count is in `step_metrics`, what the process tells of itself in `process_metrics`. Names follow Prometheus:
base units, `_total` for counters. Labels are bounded: nothing that a caller chooses.
"""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from engine.request import PHASES, FinishReason, Timings
from server.telemetry.guards import GuardFlag
from server.telemetry.step_metrics import StepMetrics, WorkerMetrics

LATENCY_SECONDS: Sequence[float] = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.35, 0.5, 0.75),
    *(1, 2, 5, 10, 20, 30, 60),
)
"""From a refusal, which costs half a millisecond, to 60 s, the longest deadline that makes sense for a text. Densest
between 20 ms and 1 s, where sentences of small and base-size models end."""

PHASE_SECONDS: Sequence[float] = (0.000025, 0.00005, 0.0001, 0.00025, *LATENCY_SECONDS)
"""As above, and from 25 us: a short text is tokenised in less than 50 us."""


class Metrics:
    """What the server counts. Every method may be called from any thread and takes some microseconds.

    A `trace_id` becomes the exemplar of what is timed; empty, there is none.
    """

    def __init__(self, registry: CollectorRegistry, model: str = "default") -> None:
        """Registers every metric; `model` is the label of those that belong to a model."""
        self._registry = registry
        self._model = model
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which Prometheus ignores
        self._define_rpc_metrics()
        self._define_request_metrics()
        self._define_outcome_metrics()
        self._steps = StepMetrics(registry, model)

    def _define_rpc_metrics(self) -> None:
        self._rpc_requests = Counter(
            "dragoman_rpc_requests", "RPCs answered.", ["method", "code"], registry=self._registry
        )
        self._rpc_seconds = Histogram(
            "dragoman_rpc_duration_seconds",
            "From the arrival of an RPC's request to its last response.",
            ["method", "code"],
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
        self._tokenize, self._queue, self._encode, self._decode, self._detokenize = (
            phases.labels(self._model, phase) for phase in PHASES
        )
        self._first_token = Histogram(
            "dragoman_time_to_first_token_seconds",
            "From the arrival of a content in the queue to its first target token.",
            ["model"],
            registry=self._registry,
            buckets=LATENCY_SECONDS,
        ).labels(self._model)
        self._waiting = Gauge(
            "dragoman_requests_waiting", "Contents in the queue.", ["model"], registry=self._registry
        ).labels(self._model)
        self._source_tokens = self._counter("dragoman_source_tokens", "Source tokens of answered contents.")
        self._target_tokens = self._counter("dragoman_target_tokens", "Target tokens of the best hypotheses.")

    def _define_outcome_metrics(self) -> None:
        finished = Counter(
            "dragoman_finished",
            "Translated contents, by the reason why the best hypothesis ended.",
            ["model", "reason"],
            registry=self._registry,
        )
        self._finished = {reason: finished.labels(self._model, reason.value) for reason in FinishReason}
        flags = Counter(
            "dragoman_guard_flags",
            "Translated contents whose best hypothesis looks wrong.",
            ["model", "flag"],
            registry=self._registry,
        )
        self._flags = {flag: flags.labels(self._model, flag.value) for flag in GuardFlag}
        self._cancellations = self._counter(
            "dragoman_cancellations", "Contents dropped because nobody waited for them any more."
        )

    def worker(self, number: int) -> WorkerMetrics:
        """What the engine of this number counts."""
        return self._steps.worker(number)

    def capacity(self, rows: int, row_tokens: int) -> None:
        """All workers together have so many rows, each with room for so many source and target tokens."""
        self._steps.capacity(rows, row_tokens)

    def rpc_started(self, method: str) -> None:
        """An RPC has come. `method` is one of the API's, never a caller's string."""
        self._rpc_in_flight.labels(method).inc()

    def rpc_finished(self, method: str, code: str, seconds: float, trace_id: str = "") -> None:
        """An RPC is answered, with the name of a gRPC status code."""
        self._rpc_in_flight.labels(method).dec()
        self._rpc_requests.labels(method, code).inc()
        self._rpc_seconds.labels(method, code).observe(seconds, exemplar(trace_id))

    def refused(self, reason: str) -> None:
        """An RPC is answered with an error of `server.errors`."""
        self._refusals.labels(reason).inc()

    def tokenized(self, seconds: float, trace_id: str = "") -> None:
        """A content became source tokens."""
        self._tokenize.observe(seconds, exemplar(trace_id))

    def detokenized(self, seconds: float, trace_id: str = "") -> None:
        """A content's hypotheses became text."""
        self._detokenize.observe(seconds, exemplar(trace_id))

    def flagged(self, flag: GuardFlag) -> None:
        """A translation looks wrong."""
        self._flags[flag].inc()

    def first_token(self, seconds: float, trace_id: str = "") -> None:
        """A content has its first target token, so long after it arrived."""
        self._first_token.observe(seconds, exemplar(trace_id))

    def finished(
        self, reason: FinishReason, timings: Timings, source_tokens: int, target_tokens: int, trace_id: str = ""
    ) -> None:
        """A content is translated. Reason and target tokens are the best hypothesis's."""
        self.encoded(timings, source_tokens, trace_id)
        self._decode.observe(timings.decode, exemplar(trace_id))
        self._target_tokens.inc(target_tokens)
        self._finished[reason].inc()

    def encoded(self, timings: Timings, source_tokens: int, trace_id: str = "") -> None:
        """A content is encoded, be it into a vector or on its way to a translation."""
        self._queue.observe(timings.queue, exemplar(trace_id))
        self._encode.observe(timings.encode, exemplar(trace_id))
        self._source_tokens.inc(source_tokens)

    def cancelled(self) -> None:
        """A content is dropped because nobody waits for it any more."""
        self._cancellations.inc()

    def waiting(self, requests: int) -> None:
        """So many contents are in the queue."""
        self._waiting.set(requests)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(name, meaning, ["model"], registry=self._registry).labels(self._model)


def exemplar(trace_id: str) -> dict[str, str] | None:
    """What OpenMetrics shows beside the bucket that a timing falls into."""
    return {"trace_id": trace_id} if trace_id else None
