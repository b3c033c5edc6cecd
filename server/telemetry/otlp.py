"""Traces for a collector: a span for each call, and below it one for each phase of its contents, by OTLP over gRPC.

The phases are known once a content is answered, so their spans are made then, from the timings that its reply has too:
nothing is added to what an engine does. OpenTelemetry sends them in batches, from a thread of its own.
"""

import threading
import time
from collections.abc import Iterator, Mapping

import grpc
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from server.telemetry.calls import AnsweredContent, Call
from server.telemetry.trace_context import TraceContext

MOST_CONTENTS = 16
"""Contents of a call whose phases are sent. A call may bring hundreds, and they look alike."""
CLOSE_S = 2.0
"""How long the last spans may take. A server that ends has a grace period, and its calls need that."""
SERVER_FAULTS = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
"""Codes that make a server's span an error, by OpenTelemetry's conventions for gRPC. Others are the caller's doing."""


class OtlpTracing:
    """Sends spans to a collector. Follows the callers' sampling; of calls without a trace it samples a share."""

    def __init__(self, endpoint: str, sample_ratio: float, version: str) -> None:
        """endpoint: such as http://127.0.0.1:4317; https:// is TLS. sample_ratio: the share, 0 to 1.

        What else there is to set has names that every OpenTelemetry SDK reads from its environment.
        """
        ours = Resource.create({"service.name": "dragoman", "service.version": version})
        resource = ours.merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(ParentBasedTraceIdRatio(sample_ratio), resource, shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("dragoman", version)
        self._propagator = TraceContextTextMapPropagator()

    def start(self, method: str, metadata: Mapping[str, str]) -> "OtlpSpan":
        """A call has come."""
        return OtlpSpan(self._tracer, method, self._propagator.extract(metadata, Context()))

    def close(self) -> None:
        """Sends what is not sent yet, if that can be done in CLOSE_S."""
        too_late = threading.Timer(CLOSE_S, self._exporter.shutdown)  # ends its retries, which take longer
        too_late.start()
        self._provider.shutdown()
        too_late.cancel()


class OtlpSpan:
    """A call as a span."""

    def __init__(self, tracer: Tracer, method: str, parent: Context) -> None:
        service, _, name = method.partition("/")
        self._tracer = tracer
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()
        """When time.perf_counter was zero."""
        self._span = tracer.start_span(
            method,
            parent,
            SpanKind.SERVER,
            {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name},
            start_time=self._ns(time.perf_counter()),
        )
        context = self._span.get_span_context()
        self.context = TraceContext(trace.format_trace_id(context.trace_id), context.trace_flags.sampled)

    def end(self, call: Call, code: str) -> None:
        """The call is answered."""
        if self._span.is_recording():
            self._describe(call, code)
            parent = trace.set_span_in_context(self._span)
            for index, content in enumerate(call.contents[:MOST_CONTENTS]):
                for name, began, ended in phases(content):
                    attributes = {"dragoman.content": index}
                    span = self._tracer.start_span(name, parent, attributes=attributes, start_time=self._ns(began))
                    span.end(self._ns(ended))
        self._span.end(self._ns(time.perf_counter()))

    def _describe(self, call: Call, code: str) -> None:
        number, _ = grpc.StatusCode[code].value
        self._span.set_attributes(
            {
                "rpc.grpc.status_code": number,
                "dragoman.request_id": call.request_id,
                "dragoman.model": call.model,
                "dragoman.contents": len(call.contents),
                "dragoman.source_tokens": call.source_tokens,
                "dragoman.target_tokens": call.target_tokens,
            }
        )
        if code in SERVER_FAULTS:
            self._span.set_status(Status(StatusCode.ERROR, call.reason or code))

    def _ns(self, seconds: float) -> int:
        """A reading of time.perf_counter, since the epoch."""
        return self._epoch_ns + round(seconds * 1e9)


def phases(content: AnsweredContent) -> Iterator[tuple[str, float, float]]:
    """Name, beginning and end of each phase, in readings of time.perf_counter."""
    timings = content.timings
    encoding = content.arrived + timings.queue
    decoding = encoding + timings.encode
    yield "tokenize", content.tokenized, content.tokenized + timings.tokenize
    yield "queue", content.arrived, encoding
    yield "encode", encoding, decoding
    if content.answer is not None:
        yield "decode", decoding, decoding + timings.decode
        yield "detokenize", content.detokenized, content.detokenized + timings.detokenize
