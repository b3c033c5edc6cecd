"""A request as it comes in: bounded in bytes and in time, and left when its caller leaves."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request

from server.errors import MessageTooLarge, RequestStalled
from server.http.errors import UnsupportedMediaType
from server.http.transport.connection import CONNECTION, Connection
from server.traffic.address import of_host
from server.traffic.traffic import Traffic

LINGER_S = 2.0
"""How long what is not read of a request may still come in. Closed before that, many a client would miss the answer."""


class Asked:
    """One request."""

    def __init__(self, request: Request, traffic: Traffic) -> None:
        self._request, self._traffic = request, traffic
        self._max_bytes = traffic.bounds.message_bytes
        self._body: bytes | None = None
        self.left = False
        """Its caller has gone."""
        self.whole = not any(name in self.headers for name in ("content-length", "transfer-encoding"))
        """All of it has come in."""

    @property
    def headers(self) -> Headers:
        return self._request.headers

    @property
    def query(self) -> QueryParams:
        return self._request.query_params

    @property
    def path_parts(self) -> Mapping[str, str]:
        """What the path has in the places that the route's path names."""
        return self._request.path_params

    @property
    def base_url(self) -> str:
        """Where its caller finds this server, with a slash at its end: a proxy before it may have ended TLS."""
        base = self._request.base_url
        scheme = self.headers.get("x-forwarded-proto", "").lower()
        return str(base.replace(scheme=scheme) if scheme in ("http", "https") else base)

    @property
    def method(self) -> str:
        return self._request.method

    @property
    def host(self) -> str:
        """Of the caller, as by gRPC, so that they are one caller however they ask."""
        return of_host(self._request.client.host if self._request.client is not None else "")

    @property
    def connection(self) -> Connection:
        """What it came by."""
        connection: Connection = self._request.scope[CONNECTION]
        return connection

    @property
    def media_type(self) -> str:
        """Of the body, without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def body(self) -> bytes:
        """All of it. CancelledError: they left.

        Raises MessageTooLarge, RequestStalled, RequestsTooLarge, UnsupportedMediaType.
        """
        if self.whole and self._body is None:
            self._body = b""
        if self._body is None:
            self._check()
            try:
                self._body = await self._traffic.arrivals.wait(self._read, self.host, str(self._request.client))
            except TimeoutError as error:
                raise RequestStalled(self._traffic.request_timeout_s) from error
            self._traffic.held.begin(len(self._body), self.host)
        return self._body

    async def read_by_caller(self) -> None:
        """Waits until the caller has read what was sent, and cuts off one that leaves it for too long."""
        if size := self.connection.unread_bytes:
            try:
                await self._traffic.departures.wait(size, self.connection.read_by_client())
            except TimeoutError:
                self.connection.abort()

    async def discard(self) -> None:
        """Waits for what was not read, but not for long."""
        try:
            async with asyncio.timeout(LINGER_S):
                while not (self.whole or self.left):
                    await self._receive()
        except TimeoutError:
            pass

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Cancels what runs inside of it when the caller leaves."""
        asking = asyncio.current_task()
        assert asking is not None

        async def watch() -> None:
            while not self.left:
                await self._receive()
            asking.cancel()

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()

    def _check(self) -> None:
        coding = self.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            raise UnsupportedMediaType("content-encoding", coding, ["identity"])
        size = int(self.headers.get("content-length", 0))
        if size > self._max_bytes:
            raise MessageTooLarge(size, self._max_bytes)

    async def _read(self) -> bytes:
        body = bytearray()
        while True:
            body += await self._receive()
            if self.left:
                raise asyncio.CancelledError
            if len(body) > self._max_bytes:
                raise MessageTooLarge(len(body), self._max_bytes)
            if self.whole:
                return bytes(body)

    async def _receive(self) -> bytes:
        """The next part."""
        message = await self._request.receive()
        if message["type"] == "http.disconnect":
            self.left = True
            return b""
        self.whole = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part
