"""A connection of uvicorn's, bounded in what uvicorn does not bound: number, age, and what is no request yet."""

import asyncio
import random
import ssl
from dataclasses import dataclass
from typing import Any

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from server.http.transport.parser import Parser
from server.http.transport.places import Places
from server.traffic.address import of_host

CONNECTION = "dragoman.connection"
"""The key of a request's scope under which its connection is."""
MOST_HEAD_BYTES = 16 * 1024
"""Of a request that are no content: its head, its trailers, and what is around its chunks."""
MOST_HEADERS = 100
"""Of a request. Each takes fifty times the memory that its shortest bytes take."""
MOST_PIPELINED = 16
"""Requests of a connection that wait for the one before them."""
FRAMING = 8
"""So many bytes more, for each byte of content: chunks may be as short as they like."""
AGE_JITTER = 0.1
"""Else connections that were made together, by all clients of a server that went, would end together."""


@dataclass(frozen=True)
class ConnectionLimits:
    """What a client may take up."""

    head_s: float
    """How long it may take until the head of a request is there."""
    age_s: float
    """After so long, AGE_JITTER more or less, the next answer is the last one, and says so."""
    age_grace_s: float
    """How long one that is old may go on. It is cut off then."""


class Connection(HttpToolsProtocol):
    """Serves one client. uvicorn makes it, and calls it as its transport does."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
        places: Places,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.parser = Parser(self)  # type: ignore[assignment]
        self._limits, self._places, self._host = limits, places, ""
        self._patience: asyncio.TimerHandle | None = None
        self._aging: asyncio.TimerHandle | None = None
        self._old = False
        self._came, self._content = 0, 0
        """Bytes since a part came in which a request began: all, and those that are content."""
        self._begun = False
        """A request has begun in the part that came last."""
        self._answering: RequestResponseCycle | None = None
        """The request that is being answered, or was last."""

    @property
    def certificate_names(self) -> tuple[str, ...] | None:
        """Subject alternative names of the client's certificate. None: it has shown none."""
        tls: ssl.SSLObject | None = self.transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls is not None else None
        if not certificate:
            return None
        names: Any = certificate.get("subjectAltName", ())
        return tuple(name for _, name in names)

    @property
    def busy(self) -> bool:
        """A whole request of it is being answered."""
        cycle = self._answering
        return cycle is not None and not (cycle.more_body or cycle.response_complete)

    @property
    def unread_bytes(self) -> int:
        """What was sent and has not left this machine."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    async def read_by_client(self) -> None:
        """Waits until nothing is unread, or the client has gone."""
        await self.flow.drain()

    def abort(self) -> None:
        """Cuts it off, with whatever is not sent."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._host = host_of(transport.get_extra_info("peername"))
        if not self._places.take(self, self._host):
            self.abort()
        else:
            transport.set_write_buffer_limits(1, 0)  # what is written is read as far as we can see, or it is not
            age_s = self._limits.age_s * random.uniform(1 - AGE_JITTER, 1 + AGE_JITTER)
            self._aging = self.loop.call_later(age_s, self._is_old)
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._places.leave(self, self._host)
        self._head_is_there()
        if self._aging is not None:
            self._aging.cancel()
        super().connection_lost(exc)
        if self._answering is not None:  # uvicorn tells the last request that came, which waits behind this one
            self._answering.disconnected = True
            self._answering.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._patience is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        self._begun, before = False, self._content
        super().data_received(data)
        if self._begun:
            self._came, self._content = 0, self._content - before
        self._came += len(data)
        if self.transport.is_closing():
            return
        if self._came > MOST_HEAD_BYTES + FRAMING * self._content or len(self.headers or ()) > MOST_HEADERS:
            self._refuse(b"431 Request Header Fields Too Large")
        elif len(self.pipeline) > MOST_PIPELINED:
            self._refuse(b"429 Too Many Requests")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun = True
        self.scope[CONNECTION] = self  # type: ignore[literal-required]  # ASGI lets servers add keys

    def on_headers_complete(self) -> None:
        self._head_is_there()
        super().on_headers_complete()

    def _should_upgrade(self) -> bool:
        """A head that the parser will tell again is nothing yet."""
        return True

    def on_body(self, body: bytes) -> None:
        self._content += len(body)
        super().on_body(body)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        if self._old:
            cycle.keep_alive = False
        super()._start_asgi_task(cycle, until_close(cycle, app) if cycle.scope["http_version"] == "1.0" else app)

    def timeout_keep_alive_handler(self) -> None:
        """Nobody has asked for long; and maybe nobody reads either, which a mere close would wait for."""
        self.abort()

    def _is_old(self) -> None:
        """One without a request stays open, for one may be on its way: the answer will say that it is the last."""
        self._old = True
        if self._answering is not None:
            self._answering.keep_alive = False
        self._aging = self.loop.call_later(self._limits.age_grace_s, self.abort)

    def _await_head(self) -> None:
        self._patience = self.loop.call_later(self._limits.head_s, self._head_is_late)

    def _head_is_there(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _head_is_late(self) -> None:
        if self._came:
            self._refuse(b"408 Request Timeout")
        else:
            self.abort()

    def _refuse(self, status: bytes) -> None:
        self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()


def until_close(cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
    """An app whose answers end with the connection where they have no length: HTTP/1.0 has no chunks (RFC 9112)."""

    async def answer(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async def tell(event: ASGISendEvent) -> None:
            if event["type"] == "http.response.body":
                cycle.expected_content_length = len(event.get("body", b""))  # else uvicorn holds it against the whole
            await send(event)

        cycle.chunked_encoding = False
        await app(scope, receive, tell)

    return answer


def host_of(peer: tuple[Any, ...] | None) -> str:
    """What an address of a socket has before its port, as callers are told apart by it."""
    return of_host(peer[0]) if peer else ""
