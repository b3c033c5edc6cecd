"""What every RPC of the API goes through: limits on messages, errors, a time limit on writes, metrics.

The handlers behind it get parsed messages and raise `server.errors`; all the rest is here.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError

from server.errors import InternalError, InvalidMessage, MessageTooLarge, ServerError, StreamStalled
from server.grpc.status import call_metadata, error_metadata, status_code
from server.telemetry import calls
from server.telemetry.call_metrics import CallMetrics
from server.telemetry.calls import Call
from server.telemetry.logs import CallLog
from server.telemetry.tracing import Tracing

log = logging.getLogger(__name__)

STATUS_TIMEOUT_S = 1.0
"""How long to wait until a status is sent: it queues behind what the client has not read."""
DEADLINE_SLACK_S = 0.05
"""So long before its deadline a call may be left because of it: the client's clock has started earlier."""

Handler = Any
"""A grpc.RpcMethodHandler, whose published types know handlers of the synchronous server only."""
Context = grpc.aio.ServicerContext[Any, Any]


class RpcInterceptor(grpc.aio.ServerInterceptor):
    """Stands before the handlers of some services; others, such as health, pass by."""

    def __init__(
        self,
        services: Collection[str],
        max_message_bytes: int,
        stall_timeout_s: float,
        metrics: CallMetrics,
        tracing: Tracing,
        log: CallLog,
    ) -> None:
        """`services`: their full names. `stall_timeout_s`: how long one write of a stream may take."""
        self._services = services
        self._max_message_bytes = max_message_bytes
        self._stall_timeout_s = stall_timeout_s
        self._metrics = metrics
        self._tracing = tracing
        self._log = log
        self._handlers: dict[str, Handler] = {}
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of an RPC, as gRPC will call it."""
        path = handler_call_details.method
        if path not in self._handlers:
            handler = await continuation(handler_call_details)
            service, _, _ = path.removeprefix("/").partition("/")
            if handler is None or service not in self._services:
                return handler
            self._handlers[path] = self._guard(path.removeprefix("/"), handler)
        return self._handlers[path]

    @property
    def running(self) -> int:
        """RPCs that are being answered."""
        return self._running

    async def wait_until_idle(self) -> None:
        """Returns once no RPC is being answered."""
        await self._idle.wait()

    def _guard(self, method: str, handler: Handler) -> Handler:
        """The same handler, on bytes: what gRPC itself cannot parse it answers without a reason."""

        async def answer(data: bytes, context: Context) -> Any:
            async with self._observed(method, context):
                return await handler.unary_unary(self._parse(method, handler, data), context)

        async def stream(data: bytes, context: Context) -> None:
            async with self._observed(method, context):
                responses = handler.unary_stream(self._parse(method, handler, data), context)
                async with aclosing(responses):
                    await self._write_all(context, responses)

        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, None, handler.response_serializer)
        return grpc.unary_unary_rpc_method_handler(answer, None, handler.response_serializer)

    def _parse(self, method: str, handler: Handler, data: bytes) -> Any:
        if len(data) > self._max_message_bytes:
            raise MessageTooLarge(len(data), self._max_message_bytes)
        try:
            return handler.request_deserializer(data)
        except DecodeError as error:
            raise InvalidMessage(method, len(data)) from error

    async def _write_all(self, context: Context, responses: AsyncIterator[Any]) -> None:
        first = True
        async for response in responses:
            if first:  # apart from the message: gRPC could not end a call whose headers stand behind a stalled message
                await context.send_initial_metadata(())
                first = False
            await self._write(context, response)

    async def _write(self, context: Context, response: Any) -> None:
        """Sends a message; waits while the client's window is full. Raises StreamStalled."""
        try:
            async with asyncio.timeout(self._stall_timeout_s):
                await context.write(response)
        except TimeoutError as error:
            raise StreamStalled(self._stall_timeout_s) from error

    @asynccontextmanager
    async def _observed(self, method: str, context: Context) -> AsyncIterator[None]:
        """Counts, traces and logs the RPC, and makes a status of whatever it raises."""
        started = time.perf_counter()
        metadata = _text_metadata(context)
        span = self._tracing.start(method, metadata)
        call = Call(method, calls.request_id(metadata.get(calls.REQUEST_ID_KEY)), span.context)
        calls.begin(call)
        self._enter(method)
        code = grpc.StatusCode.OK
        try:
            yield
            context.set_trailing_metadata(call_metadata(call, time.perf_counter() - started))
        except ServerError as error:
            code = status_code(error)
            await self._refuse(context, call, error, started)
        except (asyncio.CancelledError, grpc.aio.InternalError):  # the latter: a write to a client that has gone
            code = _reason_of_leaving(context)
            raise
        except Exception:
            log.exception("%s failed", method)
            code = grpc.StatusCode.INTERNAL
            await self._refuse(context, call, InternalError(), started)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.rpc_finished(method, code.name, seconds, call.exemplar)
            span.end(call, code.name)
            self._log.write(call, code.name, seconds)
            self._leave()

    async def _refuse(self, context: Context, call: Call, error: ServerError, started: float) -> None:
        """Ends the call with a status. A client that does not read gets it when it does."""
        call.reason = error.reason
        self._metrics.refused(error.reason)
        metadata = (*error_metadata(error), *call_metadata(call, time.perf_counter() - started))
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                await context.abort(status_code(error), error.message, metadata)

    def _enter(self, method: str) -> None:
        self._metrics.rpc_started(method)
        self._running += 1
        self._idle.clear()

    def _leave(self) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()


def _text_metadata(context: Context) -> dict[str, str]:
    """What the caller sent along, without what is not text. Of a key that occurs twice, the last."""
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def _reason_of_leaving(context: Context) -> grpc.StatusCode:
    """The status that the client sees of a call it left: gRPC cancels calls whose deadline has passed, too."""
    remaining = cast("float | None", context.time_remaining())  # None: the call has no deadline
    passed = remaining is not None and remaining <= DEADLINE_SLACK_S
    return grpc.StatusCode.DEADLINE_EXCEEDED if passed else grpc.StatusCode.CANCELLED
