"""Calls as traces: a span for each call, and below it one for each phase of its contents.

The phases are known once a content is answered, so their spans are made then, from the timings that its reply has too:
nothing is added to what an engine does. Without a collector to send spans to, the tracer is OpenTelemetry's no-op, and
a call still knows its caller's trace.
"""

import time
from collections.abc import Callable, Iterator, Mapping

from google.rpc.code_pb2 import Code
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NoOpTracer, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from server.config import ConfigError, Settings
from server.telemetry.calls import REUSES, AnsweredContent, Call

INSTALL = "pip install '.[tracing]'"
MOST_CONTENTS = 16
"""Contents of a call whose phases are sent. A call may bring hundreds, and they look alike."""
SERVER_FAULTS = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
"""Codes that make a server's span an error, by OpenTelemetry's conventions for gRPC. Others are the caller's doing."""

PROPAGATOR = TraceContextTextMapPropagator()
"""Reads `traceparent`: https://www.w3.org/TR/trace-context/."""
PARENT = "traceparent"
"""The metadata without which a call belongs to no trace of its caller's."""


class Tracing:
    """Where spans go."""

    def __init__(self, tracer: Tracer, close: Callable[[], None] = lambda: None, labels: bool = False) -> None:
        """`labels`: spans have those of their calls."""
        self._tracer = tracer
        self._labels = labels
        self._traces = not isinstance(tracer, NoOpTracer)
        self.close = close
        """Sends what is not sent yet. May take a second."""

    def start(self, method: str, system: str, metadata: Mapping[str, str]) -> "CallSpan | NoSpan":
        """A call has come by a protocol. metadata: what it brought, which may say what trace it belongs to."""
        if not self._traces and PARENT not in metadata:
            return NO_SPAN
        return CallSpan(self._tracer, method, system, PROPAGATOR.extract(metadata, Context()), self._labels)


class CallSpan:
    """A call as a span."""

    def __init__(self, tracer: Tracer, method: str, system: str, parent: Context, labels: bool) -> None:
        service, _, name = method.partition("/")
        self._tracer = tracer
        self._labels = labels
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()
        """When time.perf_counter was zero."""
        self._span = tracer.start_span(
            method,
            parent,
            SpanKind.SERVER,
            {"rpc.system": system, "rpc.service": service, "rpc.method": name},
            start_time=self._ns(time.perf_counter()),
        )
        self.context = self._span.get_span_context()
        """Where in a trace the call belongs. Not valid: it is part of none."""

    def end(self, call: Call) -> None:
        """The call is answered."""
        if self._span.is_recording():
            self._describe(call)
            parent = trace.set_span_in_context(self._span)
            for index, content in enumerate(call.contents[:MOST_CONTENTS]):
                for name, began, ended in phases(content):
                    attributes = {"dragoman.content": index}
                    span = self._tracer.start_span(name, parent, attributes=attributes, start_time=self._ns(began))
                    span.end(self._ns(ended))
        self._span.end(self._ns(time.perf_counter()))

    def _describe(self, call: Call) -> None:
        self._span.set_attributes(
            {
                "rpc.grpc.status_code": Code.Value(call.code),
                "dragoman.request_id": call.request_id,
                "dragoman.caller": call.caller,
                "dragoman.model": call.model,
                "dragoman.contents": len(call.contents),
                "dragoman.source_tokens": call.source_tokens,
                "dragoman.target_tokens": call.target_tokens,
                **{f"dragoman.{reuse}": count for reuse in REUSES if (count := call.reused(reuse))},
            }
        )
        if self._labels:
            self._span.set_attributes({f"dragoman.label.{key}": value for key, value in call.labels.items()})
        if call.code in SERVER_FAULTS:
            self._span.set_status(Status(StatusCode.ERROR, call.reason or call.code))

    def _ns(self, seconds: float) -> int:
        """A reading of time.perf_counter, since the epoch."""
        return self._epoch_ns + round(seconds * 1e9)


class NoSpan:
    """Of a call that is part of no trace, as most are where no spans are sent: nothing is made for it."""

    context = INVALID_SPAN_CONTEXT

    def end(self, call: Call) -> None:
        """Nobody is told."""


NO_SPAN = NoSpan()


def phases(content: AnsweredContent) -> Iterator[tuple[str, float, float]]:
    """Name, beginning and end of each phase, in readings of time.perf_counter."""
    timings = content.timings
    encoding = content.arrived + timings.queue
    decoding = encoding + timings.encode
    yield "tokenize", content.tokenized, content.tokenized + timings.tokenize
    yield "queue", content.arrived, encoding
    yield "encode", encoding, decoding
    if content.target_tokens:  # of what is encoded only there are none
        yield "decode", decoding, decoding + timings.decode
        yield "detokenize", content.detokenized, content.detokenized + timings.detokenize


def open_tracing(settings: Settings, version: str) -> Tracing:
    """What the settings ask for; `version` is the server's. Raises ConfigError where packages for it are missing."""
    if settings.otlp_endpoint is None:
        return Tracing(NoOpTracer())
    try:
        from server.telemetry.otlp import open_otlp  # its packages are an extra
    except ImportError as error:
        raise ConfigError(
            f"otlp_endpoint is {settings.otlp_endpoint}, and the packages that send traces are not installed: {INSTALL}"
        ) from error
    otlp = open_otlp(settings.otlp_endpoint, settings.trace_sample_ratio, version)
    return Tracing(*otlp, settings.log_labels)
