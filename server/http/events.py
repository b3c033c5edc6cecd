"""Server-sent events (WHATWG HTML, section 9.2): an answer that is sent as it comes."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import Send

from server.errors import StreamStalled
from server.traffic.traffic import Traffic

MEDIA_TYPE = "text/event-stream"
BEAT_S = 15.0
"""So often a stream without an event says that it is still there, to whatever stands between."""


@dataclass(frozen=True)
class Event:
    """One."""

    name: str
    data: Mapping[str, Any]

    def encoded(self) -> bytes:
        """As it is sent. JSON has no line breaks of its own."""
        return f"event: {self.name}\ndata: {json.dumps(self.data, ensure_ascii=False)}\n\n".encode()


class EventWriter:
    """Sends the events of one answer."""

    def __init__(self, send: Send, traffic: Traffic, headers: Mapping[str, str]) -> None:
        self._send, self._traffic, self._headers = send, traffic, headers
        self.begun = False
        """The status is sent, which is that of success."""

    async def write(self, event: Event) -> None:
        """Raises StreamStalled."""
        await self._write(event.encoded())

    async def end(self, event: Event | None = None) -> None:
        """event: the last one. Raises StreamStalled."""
        await self._write(b"" if event is None else event.encoded(), last=True)

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """A comment every BEAT_S, as long as the context lasts. Raises StreamStalled where one is not read."""

        async def beat(answering: asyncio.Timeout) -> None:
            try:
                while True:
                    await asyncio.sleep(BEAT_S)
                    await self._write(b":\n\n")
            except StreamStalled:
                answering.reschedule(0)

        answering = asyncio.timeout(None)
        try:
            async with answering:
                beats = asyncio.create_task(beat(answering))
                try:
                    yield
                finally:
                    beats.cancel()
        except TimeoutError as error:
            if answering.expired():
                raise StreamStalled(self._traffic.stall_timeout_s) from error
            raise

    async def _write(self, part: bytes, last: bool = False) -> None:
        try:
            await self._traffic.departures.wait(len(part), self._sent(part, last))
        except TimeoutError as error:
            raise StreamStalled(self._traffic.stall_timeout_s) from error

    async def _sent(self, part: bytes, last: bool) -> None:
        if not self.begun:
            self.begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._encoded()})
        await self._send({"type": "http.response.body", "body": part, "more_body": not last})

    def _encoded(self) -> list[tuple[bytes, bytes]]:
        headers = {"content-type": MEDIA_TYPE, "cache-control": "no-store", **self._headers}
        return [(name.encode(), value.encode()) for name, value in headers.items()]
