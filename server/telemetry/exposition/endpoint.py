"""The metrics port: HTTP/1.1 on an event loop and a thread of its own, with limits on what those who ask may cost."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

import h11
import uvloop
from prometheus_client import CollectorRegistry

from server.config import Settings
from server.telemetry.exposition.page import CONTENT_TYPES, OPENMETRICS, Page
from server.traffic.arrivals import Arrivals
from server.traffic.ports import bind

log = logging.getLogger(__name__)

PATH = b"/metrics"
PAGE_SHARE = 0.03
"""How much of the time pages may be made in. The interpreter is busy meanwhile, and calls wait."""
REQUEST_BYTES = 16 * 1024
"""Most of a request, which has no body."""
REQUEST_S = 5.0
"""How long it may take until all of a request is there, its first byte included."""
ANSWER_S = 10.0
"""How long it may take until an answer is read."""
MOST_ASKING = 64
"""Connections whose request is not there yet. For one more, the one that is open for the longest is closed."""
MOST_ANSWERED = 64
"""Requests that are being answered. One more is refused."""
END_S = 0.5
"""How long the end may wait for the thread: what it asks a driver for may not come."""

Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type and body."""


class SharedPage:
    """Makes pages one at a time, and for all who ask in the meantime. Used on one event loop."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._coming: dict[bool, asyncio.Task[bytes]] = {}
        """By whether they are OpenMetrics: pages that are not begun."""
        self._turn = asyncio.Lock()
        self._rested = 0.0
        """When the next may be made, by the clock of the event loop."""

    async def get(self, openmetrics: bool) -> bytes:
        """A page that shows all that has happened until now."""
        if openmetrics not in self._coming:
            self._coming[openmetrics] = asyncio.create_task(self._make(openmetrics))
        return await asyncio.shield(self._coming[openmetrics])

    async def _make(self, openmetrics: bool) -> bytes:
        clock = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(self._rested - clock())
            del self._coming[openmetrics]
            started = time.thread_time()
            try:
                return self._page.write(openmetrics)
            finally:
                self._rested = clock() + (time.thread_time() - started) / PAGE_SHARE


class MetricsServer:
    """Answers GET and HEAD of /metrics, once for each connection. Used on one event loop."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._page = SharedPage(Page(registry))
        self._requests = Arrivals(MOST_ASKING, MOST_ASKING, MOST_ASKING, REQUEST_S)
        self._answered = 0

    async def page(self, openmetrics: bool) -> bytes:
        """See SharedPage."""
        return await self._page.get(openmetrics)

    async def serve(self, listener: socket.socket, end: asyncio.Event) -> None:
        """Answers whoever connects until `end`."""
        server = await asyncio.start_server(self._connected, sock=listener)
        await end.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES - 1)
        try:
            host, port, *_ = writer.get_extra_info("peername") or ("", 0)
            answer, with_body = await self._answer(connection, reader, host, port)
            async with asyncio.timeout(ANSWER_S):
                writer.write(_written(connection, *answer, with_body))
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            pass  # whoever asked has gone, or does not read
        finally:
            writer.transport.abort()

    async def _answer(
        self, connection: h11.Connection, reader: asyncio.StreamReader, host: str, port: int
    ) -> tuple[Answer, bool]:
        """And whether its body goes out, too: whoever asks by HEAD gets none."""
        try:
            request = await self._request(connection, reader, host, port)
        except TimeoutError:
            return _told(
                HTTPStatus.REQUEST_TIMEOUT, "the request did not come in time, or too many are half sent"
            ), True
        except h11.RemoteProtocolError as error:
            return _told(HTTPStatus(error.error_status_hint), str(error)), True
        return await self._answer_to(request), request.method != b"HEAD"

    async def _answer_to(self, request: h11.Request) -> Answer:
        if self._answered == MOST_ANSWERED:
            return _told(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_ANSWERED} requests are being answered: ask later")
        self._answered += 1
        try:
            return await self._page_for(request)
        except Exception:
            log.exception("a scrape failed")
            return _told(HTTPStatus.INTERNAL_SERVER_ERROR, "the page could not be made; the log says why")
        finally:
            self._answered -= 1

    async def _request(
        self, connection: h11.Connection, reader: asyncio.StreamReader, host: str, port: int
    ) -> h11.Request:
        """Raises TimeoutError, ConnectionError, and RemoteProtocolError for what is no request."""
        event = await self._requests.wait(partial(_next_event, connection, reader), host, f"{host}:{port}")
        if not isinstance(event, h11.Request):
            raise ConnectionError("whoever connected has gone without a word")
        return event

    async def _page_for(self, request: h11.Request) -> Answer:
        if request.method not in (b"GET", b"HEAD"):
            return _told(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD are the methods")
        if request.target.partition(b"?")[0] != PATH:
            return _told(HTTPStatus.NOT_FOUND, f"the metrics are at {PATH.decode()}")
        openmetrics = any(name == b"accept" and OPENMETRICS.encode() in value for name, value in request.headers)
        return HTTPStatus.OK, CONTENT_TYPES[openmetrics], await self.page(openmetrics)


@dataclass(frozen=True)
class MetricsEndpoint:
    """The metrics port, which is open."""

    port: int
    _loop: asyncio.AbstractEventLoop
    _server: MetricsServer

    async def page(self, openmetrics: bool) -> bytes:
        """The same page for another face, on its event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._server.page(openmetrics), self._loop))


@contextmanager
def metrics_endpoint(settings: Settings, registry: CollectorRegistry) -> Iterator[MetricsEndpoint]:
    """Serves /metrics on the port of the settings. Raises ConfigError."""
    listener = bind(settings.host, settings.metrics_port, "metrics_port")
    listener.listen()
    with serving(listener, registry) as endpoint:
        yield endpoint


@contextmanager
def serving(listener: socket.socket, registry: CollectorRegistry) -> Iterator[MetricsEndpoint]:
    """Serves the page of a registry on another thread. Closes the listener."""
    loop, server, end = uvloop.new_event_loop(), MetricsServer(registry), asyncio.Event()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:  # cancels, at its end, those that are not answered
            runner.run(server.serve(listener, end))

    thread = threading.Thread(target=run, name="metrics", daemon=True)
    thread.start()
    try:
        yield MetricsEndpoint(listener.getsockname()[1], loop, server)
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(END_S)
        listener.close()


async def _next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    left = REQUEST_BYTES
    while (event := connection.next_event()) is h11.NEED_DATA:
        data = await reader.read(left)
        left -= len(data)
        connection.receive_data(data)
    return event


def _told(status: HTTPStatus, message: str) -> Answer:
    return status, "text/plain; charset=utf-8", f"{message}\n".encode()


def _written(connection: h11.Connection, status: HTTPStatus, content_type: str, body: bytes, with_body: bool) -> bytes:
    headers = {"Content-Type": content_type, "Content-Length": str(len(body)), "Connection": "close"}
    response = h11.Response(status_code=status, reason=status.phrase, headers=list(headers.items()))
    events = (response, *([h11.Data(data=body)] if with_body else []), h11.EndOfMessage())
    return b"".join(connection.send(event) or b"" for event in events)
