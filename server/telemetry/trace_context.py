"""Traces that callers began: W3C Trace Context, as it comes in a call's metadata."""

import re
from dataclasses import dataclass

TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
"""Version, trace, span, flags: https://www.w3.org/TR/trace-context/#traceparent-header. Later versions add to it."""
SAMPLED = 1
"""The bit of the flags that says that the caller records the trace."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where in a trace a call belongs."""

    trace_id: str
    """32 hexadecimal digits. Empty: there is no trace."""
    sampled: bool
    """The trace is recorded, by the caller or by this server."""


NO_TRACE = TraceContext("", sampled=False)


def parse_traceparent(value: str | None) -> TraceContext:
    """What a `traceparent` says. No trace where there is none, or one that the standard says to ignore."""
    match = TRACEPARENT.fullmatch(value or "")
    if match is None:
        return NO_TRACE
    version, trace_id, _, flags, rest = match.groups()
    if version == "00" and rest is not None:
        return NO_TRACE
    return TraceContext(trace_id, bool(int(flags, 16) & SAMPLED))
