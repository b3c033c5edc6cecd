"""How much of each thing callers may have here at a time, and what memory all of it may take, whatever they send.

Sizes are what was measured with gRPC 1.85 and CPython 3.11, rounded up. Where memory is short, the numbers that no
setting gives are smaller: each kind has its share of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from server.config import Settings

CONNECTION_BYTES = 20_000
"""Of a connection to the gRPC port, with what HTTP/2 keeps for it."""
HTTP_CONNECTION_BYTES = 20_000
"""Of one to the HTTP port, with a head that is not all there."""
WINDOW_BYTES = 8 * 1024
"""Of a request, before its call is taken up. Most are shorter; longer ones take a round trip more."""
NEW_CALL_BYTES = 17_000
"""Of a call that gRPC has and the event loop has not taken up, without its window."""
CALL_BYTES = 36_000
"""Of one that has been taken up, without its texts."""
SMALL_BYTES = 256
"""A request up to there is part of its call: a probe of the platform is answered whatever others hold."""
HELD_BYTES = 20
"""Of a request that is being answered, for each byte it came as: phrases become lists of numbers."""
DOCUMENT_BYTES = 17
"""For each byte that a document unpacks to: 16 while it is translated, and one while its translation may be fetched."""
DETECTOR_BYTES = 110_000_000
"""Of what tells languages apart, while it is loaded: once somebody asks the HTTP port in which language a text is."""
MOST_NEW_CALLS = 5120
"""Calls that are not taken up: 5,000 at once, of eight connections, are none too many. gRPC cancels what is beyond
that, before it has run anything of ours that could give a reason; a client that knows us tries again."""
MOST_MESSAGES = 8
"""Messages that may be coming in, where nobody says. More of the largest than that, beside a thousand connections with
a call each, would be more than 64 MB. Those that fit into the window of their call are there at once."""
PAUSES = 4
"""Streams of requests that may wait for their next one, for each message that may be coming in."""
MOST_WAITING = 1024
"""Calls whose messages have no place yet among those that are coming in."""
SLACK_BYTES = 128 * 1024
"""So much larger than ours may be, and no larger than twice, gRPC itself takes a message: it is then we who refuse it,
with details. Each of those that come in may be so much larger, so that more of it would cost rows."""
MOST_ANSWERS_BYTES = 32 * 1024 * 1024
"""Of answers that are ready and not read."""
MOST_HELD_BYTES = 3 * 1024 * 1024
"""Of requests that are being answered, as they came. A thousand of the longest texts have that."""
MOST_WATCHERS, MOST_WATCHERS_OF_ONE = 128, 16
"""Calls of Health/Watch, and those of one connection."""
SHARE, SMALL_SHARE = 32, 64
"""One part in so many of the memory that there is, for messages that are coming in, and for each other kind."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one server."""

    message_bytes: int
    """Of a request."""
    connections: int
    http_connections: int
    waiting: int
    """Texts that wait, each of which may be a call of its own."""
    new_calls: int = MOST_NEW_CALLS
    messages: int = MOST_MESSAGES
    pauses: int = PAUSES * MOST_MESSAGES
    """Streams of requests whose next request is waited for: it may be coming in."""
    waiting_messages: int = MOST_WAITING
    answers_bytes: int = MOST_ANSWERS_BYTES
    held_bytes: int = MOST_HELD_BYTES
    document_bytes: int = 0
    """Of all documents that are translated, unpacked."""

    @classmethod
    def within(cls, settings: Settings, limit_bytes: int | None) -> Self:
        """As the settings say, and no more than memory of this size has room for. None: there is enough."""
        http = settings.max_connections if settings.http else 0
        all_of_it = cls(settings.max_message_bytes, settings.max_connections, http, settings.max_waiting)
        messages = settings.max_incoming or MOST_MESSAGES
        pauses = PAUSES * messages
        all_of_it = replace(all_of_it, document_bytes=settings.max_document_bytes, messages=messages, pauses=pauses)
        if limit_bytes is None:
            return all_of_it
        if settings.max_incoming is None:
            room = max(2, limit_bytes // SHARE // all_of_it.transport_bytes)
            messages, pauses = min(messages, room), min(pauses, room)
        return replace(
            all_of_it,
            new_calls=min(MOST_NEW_CALLS, max(64, limit_bytes // SMALL_SHARE // (NEW_CALL_BYTES + WINDOW_BYTES))),
            messages=messages,
            pauses=pauses,
            waiting_messages=min(MOST_WAITING, max(64, limit_bytes // SMALL_SHARE // CALL_BYTES)),
            answers_bytes=min(MOST_ANSWERS_BYTES, limit_bytes // SMALL_SHARE),
            document_bytes=min(settings.max_document_bytes, limit_bytes // SMALL_SHARE // DOCUMENT_BYTES),
            held_bytes=min(MOST_HELD_BYTES, limit_bytes // SMALL_SHARE // HELD_BYTES),
        )

    @property
    def new_calls_of_one(self) -> int:
        """How many of one connection may be under way.

        So a burst of its calls waits in the client rather than be cancelled here, and others have a quarter of the
        places.
        """
        return max(1, self.new_calls * 3 // 4)

    @property
    def transport_bytes(self) -> int:
        """The largest message that gRPC takes."""
        return self.message_bytes + min(self.message_bytes, SLACK_BYTES)

    @property
    def slow_messages(self) -> int:
        """How many of those that are coming in may be slow: the rest is kept for who is prompt."""
        return max(1, self.messages * 3 // 4)

    @property
    def parts(self) -> Mapping[str, int]:
        """Bytes that each kind of thing may take.

        gRPC says how long a message is once all of it is in memory, so each counts as the largest.
        """
        return {
            "connections": self.connections * CONNECTION_BYTES + self.http_connections * HTTP_CONNECTION_BYTES,
            "calls": self.new_calls * (NEW_CALL_BYTES + WINDOW_BYTES) + self._taken_up * CALL_BYTES,
            "requests": self.held_bytes * HELD_BYTES + self.message_bytes,
            "messages": (self.messages + self.pauses) * self.transport_bytes,
            "answers": self.answers_bytes,
            "documents": self.document_bytes * DOCUMENT_BYTES,
            "languages": DETECTOR_BYTES if self.http_connections else 0,
        }

    @property
    def _taken_up(self) -> int:
        """Calls that the event loop has, at most."""
        return self.waiting + self.waiting_messages + MOST_WATCHERS

    @property
    def bytes(self) -> int:
        """Of all."""
        return sum(self.parts.values())
