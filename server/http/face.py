"""A request by HTTP as a call: observed, let in and left as one by gRPC, and refused in its service's own words."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from server.errors import ServerError, quoted
from server.http.asked import Asked
from server.http.errors import InvalidField, MethodNotAllowed, error_headers
from server.http.events import Event, EventWriter
from server.identity.entrance import Entrance
from server.identity.identity import Credentials
from server.identity.identity import Scope as Permission
from server.telemetry.calls import REQUEST_ID_KEY, TIMING_KEY, Call, current_call, request_id, server_timing
from server.telemetry.observed import ObservedCalls
from server.traffic.traffic import Traffic

DEADLINE_KEY = "connect-timeout-ms"
"""How long the caller waits, in milliseconds: Connect's header, which others may send as well."""
DEADLINE_DIGITS = 10
"""Most that it may have, as Connect says."""
STATUS_TIMEOUT_S = 1.0
"""How long to wait until an error is sent that follows what the client has not read."""


class Dialect(Protocol):
    """How a service's clients say who they are, and are told what is wrong."""

    async def authorization(self, asked: Asked) -> str | None:
        """As the header of that name has it: "Bearer TOKEN". Raises ServerError where it takes the body to know."""
        ...

    def refusal(self, asked: Asked, error: ServerError) -> Response:
        """The answer that tells of an error."""
        ...


@dataclass(frozen=True)
class Route:
    """What answers at a path."""

    method: str
    path: str
    name: str
    """Of its calls, in metrics and logs: FACE.SERVICE/METHOD."""
    scopes: Sequence[Permission]
    """What callers must be let do. Empty: anything, and nobody asks who they are."""
    dialect: Dialect
    handler: Callable[[Asked], Awaitable[Response] | AsyncGenerator[Event]]
    """Gives the answer, or its events one after another. Raises ServerError."""
    observed: bool = True
    """It is counted, traced and logged."""


class HttpCaller:
    """Whoever sent a request: a `Caller`."""

    system = "http"

    def __init__(self, asked: Asked, dialect: Dialect) -> None:
        self._asked, self._dialect = asked, dialect
        self.metadata: Mapping[str, str] = dict(asked.headers)
        self.name = asked.host
        waits_ms = self.metadata.get(DEADLINE_KEY, "")
        known = waits_ms.isdecimal() and len(waits_ms) <= DEADLINE_DIGITS
        self.deadline = time.perf_counter() + int(waits_ms) / 1000 if known else None
        self.response: Response | None = None
        """What they get."""
        self.events: EventWriter | None = None
        """What they get of it as it comes."""

    def check_deadline(self) -> None:
        """Raises InvalidField for what is no number. One with more digits than there may be is longer than any wait."""
        waits_ms = self.metadata.get(DEADLINE_KEY, "0")
        if not waits_ms.isdecimal():
            told = f"{DEADLINE_KEY} is {quoted(waits_ms)}; send whole milliseconds, such as 5000, or leave it out"
            raise InvalidField(DEADLINE_KEY, told)

    def tell(self, call: Call) -> None:
        if self.response is not None:
            self.response.headers.update(call_headers(call))

    async def refuse(self, call: Call, error: ServerError) -> None:
        if self.events is not None and self.events.begun:
            with suppress(TimeoutError):
                async with asyncio.timeout(STATUS_TIMEOUT_S):
                    await self.events.end(Event("error", {"reason": error.reason, "message": error.message}))
                    return
            self._asked.connection.abort()
        else:
            self.response = self._dialect.refusal(self._asked, error)
            self.response.headers.update(error_headers(error) | call_headers(call))

    def leaving(self) -> str:
        return "DEADLINE_EXCEEDED" if self.deadline and time.perf_counter() > self.deadline else "CANCELLED"


@dataclass(frozen=True)
class Desk:
    """What all requests become calls by."""

    calls: ObservedCalls
    entrance: Entrance
    traffic: Traffic


class Endpoint:
    """The routes of a path, as an ASGI application."""

    def __init__(self, desk: Desk, routes: Sequence[Route]) -> None:
        """At least one."""
        self._desk, self._routes = desk, {route.method: route for route in routes}
        self._dialect = routes[0].dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Asked(Request(scope, receive), self._desk.traffic)
        route = self._routes.get("GET" if asked.method == "HEAD" else asked.method)
        if route is None:
            error = MethodNotAllowed(asked.method, ", ".join(self._routes))
            response: Response | None = self._dialect.refusal(asked, error)
            assert response is not None
            response.headers.update(error_headers(error))
        else:
            try:
                response = await self._answer(route, asked, send)
            except asyncio.CancelledError:
                if not asked.left:
                    raise
                return
        if response is not None:
            await reply(response, asked, scope, receive, send)

    async def _answer(self, route: Route, asked: Asked, send: Send) -> Response | None:
        """None: it is sent."""
        caller = HttpCaller(asked, route.dialect)
        calls, entrance = self._desk.calls, self._desk.entrance
        opened = (
            calls.observed(route.name, caller)
            if route.observed
            else calls.guarded(Call(route.name, request_id(caller.metadata)), caller)
        )
        async with opened:
            caller.check_deadline()
            if not route.scopes:
                await self._work(route, asked, caller, send)
            else:
                authorization = await route.dialect.authorization(asked)
                address = entrance.address(asked.host, caller.metadata)
                credentials = Credentials(address, authorization, asked.connection.certificate_names)
                async with entrance.entered(credentials, route.scopes):
                    await self._work(route, asked, caller, send)
        return caller.response

    async def _work(self, route: Route, asked: Asked, caller: HttpCaller, send: Send) -> None:
        await asked.body()  # also of a GET: some clients send their fields in one
        current_call().started = time.perf_counter()
        async with asked.watched():
            answer = route.handler(asked)
            if isinstance(answer, Awaitable):
                caller.response = await answer
                return
            caller.events = EventWriter(send, self._desk.traffic, {REQUEST_ID_KEY: current_call().request_id})
            async with aclosing(answer) as events, caller.events.beating():
                async for event in events:
                    await caller.events.write(event)
        await caller.events.end()


async def reply(response: Response, asked: Asked, scope: Scope, receive: Receive, send: Send) -> None:
    """Sends a response. A request that is not read to its end is the last one of its connection."""
    if asked.whole:
        await response(scope, receive, send)
        await asked.read_by_caller()
        return
    response.headers["connection"] = "close"

    async def send_and_linger(message: Message) -> None:
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        await send({**message, "more_body": True} if last else message)
        if last:
            await asked.discard()
            await send({"type": "http.response.body", "body": b""})

    await response(scope, receive, send_and_linger)


def call_headers(call: Call) -> dict[str, str]:
    """What goes with every answer."""
    return {REQUEST_ID_KEY: call.request_id, TIMING_KEY: server_timing(call, call.seconds)}
