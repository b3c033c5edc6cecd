"""The seam between calls and traces. Without a collector to send spans to, a call still knows its caller's trace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from server.config import ConfigError, Settings
from server.telemetry.calls import Call
from server.telemetry.trace_context import TraceContext, parse_traceparent

INSTALL = "pip install '.[tracing]'"


class Span(Protocol):
    """The time that a call takes, as part of a trace."""

    @property
    def context(self) -> TraceContext:
        """The trace."""
        ...

    def end(self, call: Call, code: str) -> None:
        """The call is answered, with the name of a gRPC status code."""
        ...


class Tracing(Protocol):
    """Where spans go."""

    def start(self, method: str, metadata: Mapping[str, str]) -> Span:
        """A call has come. metadata: what it brought, which may say what trace it belongs to."""
        ...

    def close(self) -> None:
        """Sends what is not sent yet. May take some seconds."""
        ...


@dataclass(frozen=True, slots=True)
class CallersSpan:
    """A span of a trace that this server adds nothing to."""

    context: TraceContext

    def end(self, call: Call, code: str) -> None:
        """Nothing to tell anybody."""


class CallersTraces:
    """Sends no spans."""

    def start(self, method: str, metadata: Mapping[str, str]) -> CallersSpan:
        """A call has come."""
        return CallersSpan(parse_traceparent(metadata.get("traceparent")))

    def close(self) -> None:
        """Nothing is left to send."""


def open_tracing(settings: Settings, version: str) -> Tracing:
    """What the settings ask for; `version` is the server's. Raises ConfigError where packages for it are missing."""
    if settings.otlp_endpoint is None:
        return CallersTraces()
    try:
        from server.telemetry.otlp import OtlpTracing  # its packages are an extra
    except ImportError as error:
        raise ConfigError(
            f"otlp_endpoint is {settings.otlp_endpoint}, and the packages that send traces are not installed: {INSTALL}"
        ) from error
    return OtlpTracing(settings.otlp_endpoint, settings.trace_sample_ratio, version)
