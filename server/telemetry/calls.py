"""What is known of an RPC while it is answered: for its log line, its trailing metadata, its trace and exemplars."""

import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import attrgetter
from secrets import token_hex
from typing import NamedTuple

from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext, format_trace_id

from engine.request import PHASES, Timings
from server.errors import LabelTooLong, TooManyLabels

REQUEST_ID_KEY = "x-request-id"
"""Metadata, both ways: the name of a call, in its caller's logs and in ours."""
TIMING_KEY = "server-timing"
"""Metadata of an answer: where the time of the call went (W3C Server Timing)."""
REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")
"""What callers may name a call. Other names could break a log line, or fill it."""

TOLD_PHASES = ", ".join(f"{phase};dur=%.3f" for phase in PHASES)
"""Of `server_timing`. As one format, it is filled in in a third of the time."""

REUSES = ("shared", "cached")
"""How an answer may be that of another content: see `dragoman.v1.Reuse`."""
MOST_LABELS = 16
LABEL_CHARACTERS = 128
"""Of a key, and of a value."""


class AnsweredContent(NamedTuple):
    """One text of a call, and what became of it. Times are readings of time.perf_counter."""

    text: str
    answer: str | None
    """Of a translation: the best hypothesis."""
    timings: Timings
    tokenized: float
    """When tokenising began."""
    arrived: float
    """When it came into the queue."""
    detokenized: float
    """When detokenising began, or would have."""
    source_tokens: int
    target_tokens: int = 0
    reuse: str = ""
    """"shared": another content was decoded for it; "cached": the answer was kept."""


@dataclass(slots=True)
class Call:
    """An RPC."""

    method: str = ""
    request_id: str = ""
    trace: SpanContext = INVALID_SPAN_CONTEXT
    model: str = ""
    code: str = "OK"
    """Name of the gRPC status code that it is answered with."""
    reason: str = ""
    """Of the error that it is answered with, if it is."""
    contents: list[AnsweredContent] = field(default_factory=list)
    """Those that are answered so far."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the caller says of it, as `checked_labels` takes it."""
    started: float = field(default_factory=time.perf_counter)
    deadline: float | None = None
    """Nobody waits for it after that, by time.perf_counter."""
    caller: str = ""
    """Who shares the server with other callers. In no label: there may be any number of them."""
    bulk: bool = False
    """Its caller has more urgent ones."""
    exemplar: str = field(init=False)
    """The trace to look at for an example of its timings. Empty: none is recorded, by the caller or by us."""

    def __post_init__(self) -> None:
        self.exemplar = self.trace_id if self.trace.trace_flags.sampled else ""

    @property
    def seconds(self) -> float:
        """Since the call came."""
        return time.perf_counter() - self.started

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits. Empty: the call is part of no trace."""
        return format_trace_id(self.trace.trace_id) if self.trace.is_valid else ""

    @property
    def source_tokens(self) -> int:
        return sum(content.source_tokens for content in self.contents)

    @property
    def target_tokens(self) -> int:
        return sum(content.target_tokens for content in self.contents)

    def reused(self, reuse: str) -> int:
        """Contents whose answer was, in this way."""
        return sum(content.reuse == reuse for content in self.contents)

    @property
    def steps(self) -> int:
        """Of the content that took most."""
        return max((content.timings.steps for content in self.contents), default=0)

    @property
    def mean_batch_rows(self) -> float:
        """Of the content whose steps had most rows."""
        return max((content.timings.mean_batch_rows for content in self.contents), default=0.0)

    def phase_seconds(self) -> dict[str, float]:
        """Time in each phase: of several contents the longest, as they are worked on at the same time."""
        if not self.contents:
            return dict.fromkeys(PHASES, 0.0)
        first, *others = (phases_of(content.timings) for content in self.contents)
        return dict(zip(PHASES, map(max, first, *others) if others else first, strict=True))


phases_of = attrgetter(*PHASES)
_current: ContextVar[Call | None] = ContextVar("call", default=None)


def begin(call: Call) -> None:
    """Makes it the call that the running task answers."""
    _current.set(call)


def current_call() -> Call:
    """The call that the running task answers. Outside of any, one that nobody looks at."""
    return _current.get() or Call()


def request_id(metadata: Mapping[str, str]) -> str:
    """What the caller names the call in what comes with it, if that is well-formed, else a new name."""
    asked = metadata.get(REQUEST_ID_KEY, "")
    return asked if REQUEST_ID.fullmatch(asked) else token_hex(16)


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels that fit into a line of the log. Raises TooManyLabels or LabelTooLong."""
    if not labels:  # as of most calls
        return {}
    if len(labels) > MOST_LABELS:
        raise TooManyLabels(len(labels), MOST_LABELS)
    for key, value in labels.items():
        if len(key) > LABEL_CHARACTERS:
            raise LabelTooLong(key, "key", len(key), LABEL_CHARACTERS)
        if len(value) > LABEL_CHARACTERS:
            raise LabelTooLong(key, "value", len(value), LABEL_CHARACTERS)
    return dict(labels)


def server_timing(call: Call, seconds: float) -> str:
    """Where the time of a call went, in milliseconds, as W3C Server Timing writes it. `seconds`: of the whole call."""
    total = f"total;dur={seconds * 1000:.3f}"
    if not call.contents:
        return total
    phases = TOLD_PHASES % tuple([1000 * of for of in call.phase_seconds().values()])
    return f'{phases}, {total}, steps;desc="{call.steps}", batch-rows;desc="{call.mean_batch_rows:.1f}"'
