"""What every RPC goes through: limits on messages, a time limit on writes, and the status of whatever fails.

The handlers behind it get parsed messages and raise `server.errors`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, nullcontext, suppress
from functools import partial
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError

from server.admission.shedding import Shedding
from server.api.scopes import computes, scopes_of
from server.errors import (
    Draining,
    InvalidMessage,
    MessageTooLarge,
    RequestStalled,
    ServerError,
    StreamPaused,
    StreamStalled,
)
from server.grpc.status import call_metadata, error_metadata, status_code
from server.identity.entrance import Entrance
from server.identity.identity import Credentials
from server.telemetry.calls import Call, current_call, request_id
from server.telemetry.observed import ObservedCalls
from server.traffic.address import of_peer
from server.traffic.arrivals import Arrivals
from server.traffic.traffic import Traffic

STATUS_TIMEOUT_S = 1.0
"""How long to wait until a status is sent: it queues behind what the client has not read."""
DEADLINE_SLACK_S = 0.05
"""So long before its deadline a call may be left because of it: the client's clock has started earlier."""

OPEN_SERVICES = frozenset({"grpc.health.v1.Health"})
"""Load balancers and orchestrators ask without a name."""
AUTHORIZATION = "authorization"
"""Metadata: a bearer token (RFC 6750)."""
PEER_CERTIFICATE, SUBJECT_ALTERNATIVE_NAME = "x509_pem_cert", "x509_subject_alternative_name"
"""What gRPC knows of a connection with mutual TLS."""

Handler = Any
"""A grpc.RpcMethodHandler, whose published types know handlers of the synchronous server only."""
Context = grpc.aio.ServicerContext[Any, Any]
Task = asyncio.Task[Any]
Around = Callable[["RpcCaller"], AbstractAsyncContextManager[None]]
"""What a call runs in."""


class RpcInterceptor(grpc.aio.ServerInterceptor):
    """Stands before all handlers. Those of some services are observed; others, such as health, are guarded only."""

    def __init__(
        self,
        services: Collection[str],
        traffic: Traffic,
        calls: ObservedCalls,
        entrance: Entrance | None = None,
        shedding: Shedding | None = None,
    ) -> None:
        """`services`: full names of the observed.

        entrance: what calls pass before their request is taken in. None: everybody may enter
        shedding: refuses some of those that want work done. None: all are looked at
        """
        self._entrance = entrance or Entrance()
        self._services, self._traffic, self._calls, self._shedding = services, traffic, calls, shedding
        self._handlers: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of an RPC, as gRPC will call it."""
        path = handler_call_details.method
        if path not in self._handlers:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._handlers[path] = self._guard(path.removeprefix("/"), handler)
        return self._handlers[path]

    def _guard(self, method: str, handler: Handler) -> Handler:
        """The same handler, on bytes: what gRPC itself cannot parse it answers without a reason.

        To gRPC every client streams, so that the handler runs, and the call is counted, before a request is there.
        """
        behaviour = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

        serialize = handler.response_serializer
        opened, entered, looked_at = self._opened(method), self._entered(method), self._looked_at(method, handler)

        async def each(method: str, handler: Handler, context: Context) -> Any:
            return self._each(method, handler, context, _this_task())

        request = partial(each if handler.request_streaming else self._one, method, handler)

        async def answer(_: object, context: Context) -> Any:
            caller = RpcCaller(context)
            async with opened(caller), entered(caller):
                with looked_at():
                    response = await behaviour(await request(context), context)
                data: bytes = serialize(response) if serialize is not None else response
                self._traffic.departures.begin(len(data))
                return data

        async def stream(_: object, context: Context) -> None:
            caller = RpcCaller(context)
            async with opened(caller), entered(caller):
                with looked_at():
                    async with aclosing(behaviour(await request(context), context)) as responses:
                        await self._write_all(context, responses, serialize)

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(stream, None, None)
        return grpc.stream_unary_rpc_method_handler(answer, None, None)

    def _opened(self, method: str) -> Around:
        """What a handler runs in, and what answers whatever it raises."""
        if method.partition("/")[0] in self._services:
            return partial(self._calls.observed, method)
        return lambda caller: self._calls.guarded(Call(method, request_id(caller.metadata), caller=caller.name), caller)

    def _entered(self, method: str) -> Around:
        """Who calls is known, may do so, and has a quota left. Raises ServerError when it is entered."""
        if method.partition("/")[0] in OPEN_SERVICES:
            return lambda caller: nullcontext()
        entrance, scopes = self._entrance, scopes_of(method)
        return lambda caller: entrance.entered(caller.credentials(entrance), scopes)

    def _looked_at(self, method: str, handler: Handler) -> Callable[[], AbstractContextManager[None]]:
        """The request is read, and admission says whether it is answered. Raises TooManyCalls when it is entered.

        Not of those who stream requests: gRPC's client for asyncio says INTERNAL where a call ends while it writes.
        """
        if self._shedding is None or handler.request_streaming or not computes(method):
            return nullcontext
        return self._shedding.look

    async def _one(self, method: str, handler: Handler, context: Context) -> Any:
        """The request of a call that has one. Raises InvalidMessage, MessageTooLarge or RequestStalled."""
        try:
            data = await self._read(context, self._traffic.arrivals, _this_task())
        except TimeoutError as error:
            raise RequestStalled(self._traffic.request_timeout_s) from error
        if data is grpc.aio.EOF:
            raise InvalidMessage(method, 0, "none came before the end of what the caller sends")
        current_call().started = time.perf_counter()
        return self._parse(method, handler, data)

    async def _each(self, method: str, handler: Handler, context: Context, task: Task) -> AsyncIterator[Any]:
        """Those of a stream. task: of the call. Raises InvalidMessage, MessageTooLarge, StreamPaused or Draining."""
        while (data := await self._next(context, task)) is not grpc.aio.EOF:
            yield self._parse(method, handler, data)

    async def _next(self, context: Context, task: Task) -> Any:
        try:
            return await self._read(context, self._traffic.pauses, task)
        except TimeoutError as error:
            if self._traffic.pauses.ended:
                raise Draining from error
            raise StreamPaused(self._traffic.pause_timeout_s, self._traffic.bounds.pauses) from error

    async def _read(self, context: Context, among: Arrivals, task: Task) -> Any:
        """A message, in bytes, or grpc.aio.EOF. Raises TimeoutError."""
        return await among.wait(context.read, current_call().caller, context.peer(), task)

    def _parse(self, method: str, handler: Handler, data: bytes) -> Any:
        if len(data) > self._traffic.bounds.message_bytes:
            raise MessageTooLarge(len(data), self._traffic.bounds.message_bytes)
        self._traffic.held.begin(len(data), current_call().caller)
        try:
            return handler.request_deserializer(data)
        except DecodeError as error:
            raise InvalidMessage(method, len(data)) from error

    async def _write_all(
        self, context: Context, responses: AsyncIterator[Any], serialize: Callable[[Any], bytes] | None
    ) -> None:
        first = True
        async for response in responses:
            try:
                if first:  # apart from the message: gRPC could not end a call whose headers stand behind a stalled one
                    await context.send_initial_metadata(())
                    first = False
                await self._write(context, serialize(response) if serialize is not None else response)
            except grpc.aio.InternalError as error:  # a write to a client that has gone
                raise asyncio.CancelledError from error

    async def _write(self, context: Context, data: bytes) -> None:
        """Sends a message; waits while the client's window is full. Raises StreamStalled."""
        try:
            await self._traffic.departures.wait(len(data), context.write(data))
        except TimeoutError as error:
            raise StreamStalled(self._traffic.stall_timeout_s) from error


def _this_task() -> Task:
    task = asyncio.current_task()
    assert task is not None
    return task


def let_go(aborted: grpc.aio.AbortError, _: object) -> None:
    """Frees a call that has ended so.

    gRPC keeps the exception with the call, and by its frames the exception keeps the call, with all that has come in of
    its request: until the garbage collector looks.
    """
    aborted.__traceback__ = aborted.__context__ = None


def certificate_names(auth: Mapping[str, Iterable[bytes]]) -> tuple[str, ...] | None:
    """Subject alternative names of the client's certificate, in its order. None: it has shown none."""
    if PEER_CERTIFICATE not in auth:
        return None
    return tuple(name.decode(errors="backslashreplace") for name in auth.get(SUBJECT_ALTERNATIVE_NAME, ()))


class RpcCaller:
    """Whoever made an RPC: a `Caller`."""

    system = "grpc"

    def __init__(self, context: Context) -> None:
        self._context = context
        sent = context.invocation_metadata() or ()
        self.metadata = {key: value for key, value in sent if isinstance(value, str)}
        """What the caller sent along, without what is not text. Of a key that occurs twice, the last."""
        self.name = of_peer(context.peer())
        """Of the host: who it is, the door says."""
        remaining = cast("float | None", context.time_remaining())  # None: the call has no deadline
        self.deadline = None if remaining is None else time.perf_counter() + remaining
        """When they stop to wait, by time.perf_counter."""

    def credentials(self, entrance: Entrance) -> Credentials:
        """What the caller says of itself."""
        address = entrance.address(self.name, self.metadata)
        return Credentials(address, self.metadata.get(AUTHORIZATION), certificate_names(self._context.auth_context()))

    def tell(self, call: Call) -> None:
        """Says how the call went, in trailing metadata."""
        self._context.set_trailing_metadata(call_metadata(call))

    async def refuse(self, call: Call, error: ServerError) -> None:
        """Ends the call with a status. A client that does not read gets it when it does."""
        metadata = (*error_metadata(error), *call_metadata(call))
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                try:
                    await self._context.abort(status_code(error), error.message, metadata)
                except grpc.aio.AbortError as aborted:
                    _this_task().add_done_callback(partial(let_go, aborted))
                    raise

    def leaving(self) -> str:
        """The status that the client sees of a call it left: gRPC cancels calls whose deadline has passed, too."""
        remaining = cast("float | None", self._context.time_remaining())  # None: the call has no deadline
        passed = remaining is not None and remaining <= DEADLINE_SLACK_S
        return "DEADLINE_EXCEEDED" if passed else "CANCELLED"
