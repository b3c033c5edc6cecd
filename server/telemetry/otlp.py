"""Spans for a collector, by OTLP over gRPC: OpenTelemetry sends them in batches, from a thread of its own."""

import threading
from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import Tracer

CLOSE_S = 1.0
"""How long the last spans may take: a server that ends has little time left."""


def open_otlp(endpoint: str, sample_ratio: float, version: str) -> tuple[Tracer, Callable[[], None]]:
    """A tracer that follows the callers' sampling, and samples a share of the calls without a trace; and its end.

    endpoint: such as http://127.0.0.1:4317; https:// is TLS. sample_ratio: the share, 0 to 1. What else there is to set
    has names that every OpenTelemetry SDK reads from its environment.
    """
    ours = Resource.create({"service.name": "dragoman", "service.version": version})
    resource = ours.merge(OTELResourceDetector().detect())
    provider = TracerProvider(ParentBasedTraceIdRatio(sample_ratio), resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint)
    provider.add_span_processor(BatchSpanProcessor(exporter))

    def close() -> None:
        """Sends what is not sent yet, if that can be done in CLOSE_S."""
        too_late = threading.Timer(CLOSE_S, exporter.shutdown)  # ends its retries, which take longer
        too_late.start()
        provider.shutdown()
        too_late.cancel()

    return provider.get_tracer("dragoman", version), close
