"""What calls count. docs/metrics.md says what each is good for.

What their contents count is in `model_metrics`, what engines count in `step_metrics`, and what the process tells of
itself in `process_metrics`. Names follow Prometheus: base units, `_total` for counters. Labels are bounded: nothing
that a caller chooses.
"""

from collections.abc import Sequence
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from server import errors

LATENCY_SECONDS: Sequence[float] = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.35, 0.5, 0.75),
    *(1, 2, 5, 10, 20, 30, 60, 300),
)
"""From a refusal, which costs half a millisecond, to 60 s, the longest deadline that makes sense for a text, and to
300 s for documents. Densest between 20 ms and 1 s, where sentences of small and base-size models end."""

FAULTS = ("UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED")
"""Codes of calls that fail by the server's fault, or are too slow for their callers. With their reasons they count from
zero: what begins with its first event has no rate at that event, and alerts would not see the first burst of it."""


class CallMetrics:
    """What is counted of RPCs. Every method may be called from any thread and takes some microseconds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers every metric."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which Prometheus ignores
        self._requests = Counter("dragoman_rpc_requests", "RPCs answered.", ["method", "code"], registry=registry)
        self._seconds = Histogram(
            "dragoman_rpc_duration_seconds",
            "From the arrival of an RPC's request to its last response.",
            ["method", "code"],
            registry=registry,
            buckets=LATENCY_SECONDS,
        )
        self._in_flight = Gauge(
            "dragoman_rpc_in_flight", "RPCs whose answer is not sent.", ["method"], registry=registry
        )
        # Looking labels up takes longer than counting.
        self._running = cache(self._begun)
        self._answered = cache(lambda *labels: (self._requests.labels(*labels), self._seconds.labels(*labels)))
        refusals = Counter(
            "dragoman_refusals", "RPCs answered with an error, by its reason.", ["reason"], registry=registry
        )
        self._refusals = cache(refusals.labels)
        for reason in fault_reasons():
            self._refusals(reason)

    def rpc_started(self, method: str) -> None:
        """An RPC has come. `method` is one of the API's, never a caller's string."""
        self._running(method).inc()

    def rpc_finished(self, method: str, code: str, seconds: float, trace_id: str = "") -> None:
        """An RPC is answered, with the name of a gRPC status code."""
        requests, durations = self._answered(method, code)
        requests.inc()
        durations.observe(seconds, exemplar(trace_id))

    def rpc_ended(self, method: str) -> None:
        """Nothing of its answer is left to be sent."""
        self._running(method).dec()

    def refused(self, reason: str) -> None:
        """An RPC is answered with an error of `server.errors`."""
        self._refusals(reason).inc()

    def _begun(self, method: str) -> Gauge:
        """The first RPC of a method has come."""
        for code in FAULTS:
            self._requests.labels(method, code)
        return self._in_flight.labels(method)


def fault_reasons() -> list[str]:
    """The reasons of errors that are the server's fault."""
    found = (one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.ServerError))
    return [one.reason for one in found if hasattr(one, "reason") and one.status in FAULTS]


def exemplar(trace_id: str) -> dict[str, str] | None:
    """What OpenMetrics shows beside the bucket that a timing falls into."""
    return {"trace_id": trace_id} if trace_id else None
