"""What the faces of a server share, so that a caller finds no more room by using both."""

from dataclasses import dataclass
from typing import Self

from server.config import Settings
from server.traffic.arrivals import Arrivals
from server.traffic.bounds import Bounds
from server.traffic.departures import Departures
from server.traffic.held import Held


@dataclass(frozen=True)
class Traffic:
    """Requests that come in and those that are being answered, and answers that go out."""

    bounds: Bounds
    arrivals: Arrivals
    pauses: Arrivals
    """Requests of streams, which may take their time: a client may wait for the answer to the one before."""
    held: Held
    departures: Departures
    documents: Held
    """Those that are translated."""
    request_timeout_s: float
    """How long a message of a caller may take."""
    pause_timeout_s: float
    """How long a stream of requests may take until its next one is there."""
    stall_timeout_s: float
    """How long what is sent to a caller may stay unread."""

    @classmethod
    def of(cls, settings: Settings, bounds: Bounds) -> Self:
        request_s, pause_s = settings.request_timeout_s, settings.connection_idle_s
        stall_s = settings.stream_stall_timeout_s
        arrivals = Arrivals(bounds.messages, bounds.slow_messages, bounds.waiting_messages, request_s)
        pauses = Arrivals(bounds.pauses, bounds.pauses, bounds.waiting_messages, pause_s)
        departures = Departures(bounds.answers_bytes, stall_s)
        held, documents = Held(bounds.held_bytes), Held(bounds.document_bytes)
        return cls(bounds, arrivals, pauses, held, departures, documents, request_s, pause_s, stall_s)
