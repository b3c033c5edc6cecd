"""What a model's contents count, from a text's tokens to its answer. docs/metrics.md says what each is good for.

The families are registered once; each model has its own series of them.
"""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from engine.observer import RestartCause
from engine.request import PHASES, FinishReason, Timings
from kernels.library import Counters
from server.telemetry.guards import GuardFlag
from server.telemetry.metrics.call import LATENCY_SECONDS, exemplar
from server.telemetry.metrics.kernel import KernelFamilies
from server.telemetry.metrics.step import StepFamilies, WorkerMetrics

PHASE_SECONDS: Sequence[float] = (0.000025, 0.00005, 0.0001, 0.00025, *LATENCY_SECONDS)
"""As of calls, and from 25 us: a short text is tokenised in less than 50 us."""


class ModelFamilies:
    """The families that all models share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers every metric."""
        self._registry = registry
        self.steps, self.kernels = StepFamilies(registry), KernelFamilies(registry)
        self.phases = self._histogram(
            "dragoman_phase_duration_seconds", "Time of one content in each phase of its way.", PHASE_SECONDS, "phase"
        )
        self.first_token = self._histogram(
            "dragoman_time_to_first_token_seconds",
            "From the arrival of a content in the queue to its first target token.",
            LATENCY_SECONDS,
        )
        self.waiting = Gauge("dragoman_requests_waiting", "Contents in the queue.", ["model"], registry=registry)
        self.memory = Gauge(
            "dragoman_memory_bytes", "Memory of the process, as calculated at start.", ["kind"], registry=registry
        )
        self.source_tokens = self._counter("dragoman_source_tokens", "Source tokens of answered contents.")
        self.target_tokens = self._counter("dragoman_target_tokens", "Target tokens of the best hypotheses.")
        self.scored_tokens = self._counter("dragoman_scored_tokens", "Target tokens that were given and scored.")
        self.finished = self._counter(
            "dragoman_finished", "Translated contents, by the reason why the best hypothesis ended.", "reason"
        )
        self.flags = self._counter(
            "dragoman_guard_flags", "Translated contents whose best hypothesis looks wrong.", "flag"
        )
        self.shared = self._counter(
            "dragoman_answers_shared", "Contents that waited for the answer of an equal one that was under way."
        )
        self.cancellations = self._counter(
            "dragoman_cancellations", "Contents dropped because nobody waited for them any more."
        )

        self.restarts = self._counter("dragoman_engine_restarts", "Workers that failed and began anew.", "cause")
        self.retried = self._counter(
            "dragoman_retried", "Contents of workers that failed, which the server tried again by itself."
        )
        self.quarantined = self._counter(
            "dragoman_quarantined", "Contents refused because the engine has failed twice with them."
        )

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, ["model", *labels], registry=self._registry)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, meaning, ["model", *labels], registry=self._registry, buckets=buckets)


class ModelMetrics:
    """What is counted of one model: an observer of its engine, and of its tokenizer.

    Every method may be called from any thread and takes some microseconds. A `trace_id` becomes the exemplar of what is
    timed; empty, there is none.
    """

    def __init__(self, families: ModelFamilies, model: str) -> None:
        """`model`: the name in the label of every series."""
        self._model = model
        self._workers: dict[int, WorkerMetrics] = {}
        self._rows = self._row_tokens = 0
        self._counters: Callable[[], Counters] | None = None
        self.count_in(families)

    def count_in(self, families: ModelFamilies) -> None:
        """Counts there from now on, and no longer where it did: a candidate counts apart until it serves."""
        model = self._model
        families.steps.show(model, self._workers)
        self._steps, self._kernels = families.steps, families.kernels
        self.capacity(self._rows, self._row_tokens)
        if self._counters is not None:
            self.kernels(self._counters)
        self._tokenize, self._queue, self._encode, self._decode, self._detokenize = (
            families.phases.labels(model, phase) for phase in PHASES
        )
        self._first_token, self._waiting = families.first_token.labels(model), families.waiting.labels(model)
        self._memory = families.memory
        self._source_tokens, self._target_tokens, self._scored_tokens = (
            family.labels(model) for family in (families.source_tokens, families.target_tokens, families.scored_tokens)
        )
        self._finished = {reason: families.finished.labels(model, reason.value) for reason in FinishReason}
        self._flags = {flag: families.flags.labels(model, flag.value) for flag in GuardFlag}
        self._shared = families.shared.labels(model)
        self._cancellations = families.cancellations.labels(model)

        self._restarts = {cause: families.restarts.labels(model, cause.value) for cause in RestartCause}
        self._retried, self._quarantined = families.retried.labels(model), families.quarantined.labels(model)

    def worker(self, number: int) -> WorkerMetrics:
        """What the running batch of this number counts."""
        return self._workers.setdefault(number, WorkerMetrics())

    def capacity(self, rows: int, row_tokens: int) -> None:
        """All workers together have so many rows, each with room for so many source and target tokens."""
        self._rows, self._row_tokens = rows, row_tokens
        self._steps.rows_capacity.labels(self._model).set(rows)
        self._steps.tokens_capacity.labels(self._model).set(rows * row_tokens)

    def memory(self, budget_bytes: int, limit_bytes: int) -> None:
        """The process may come to take so much memory, of so much that it may take."""
        self._memory.labels("budget").set(budget_bytes)
        self._memory.labels("limit").set(limit_bytes)

    def kernels(self, counters: Callable[[], Counters]) -> None:
        """Our own operators run, and count."""
        self._counters = counters
        self._kernels.watch(counters)

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

    def scored(self, timings: Timings, source_tokens: int, target_tokens: int, trace_id: str = "") -> None:
        """The given targets of a content are scored."""
        self.encoded(timings, source_tokens, trace_id)
        self._decode.observe(timings.decode, exemplar(trace_id))
        self._scored_tokens.inc(target_tokens)

    def shared(self) -> None:
        """A content waits for the answer of an equal one."""
        self._shared.inc()

    def cancelled(self) -> None:
        """A content is dropped because nobody waits for it any more."""
        self._cancellations.inc()

    def restarted(self, cause: RestartCause) -> None:
        """A worker has failed, and began anew."""
        self._restarts[cause].inc()

    def retried(self, requests: int) -> None:
        """So many contents of a worker that failed are tried again."""
        self._retried.inc(requests)

    def quarantined(self) -> None:
        """A content is refused because the engine has failed twice with it."""
        self._quarantined.inc()

    def waiting(self, requests: int) -> None:
        """So many contents are in the queue."""
        self._waiting.set(requests)
