"""gRPC's generated stubs over handlers in this process: messages are handed over as they are, and nothing is sent."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import aclosing
from queue import SimpleQueue
from typing import Any

import grpc
from google.protobuf.message import Message

from server.errors import Draining, MessageTooLarge, ServerError
from server.grpc.status import Metadata, call_metadata, error_metadata, status_code
from server.telemetry.calls import Call
from server.telemetry.observed import ObservedCalls

Handler = Any
"""A grpc.RpcMethodHandler, whose published types know handlers of the synchronous server only."""


class Handlers:
    """What generated code adds services to, as it does to a server."""

    def __init__(self) -> None:
        self._of: dict[str, Handler] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        self._of |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def add_generic_rpc_handlers(self, handlers: Sequence[object]) -> None:
        """They are those that are registered, once more."""

    def handler(self, path: str) -> Handler:
        """Of a method, by /SERVICE/METHOD."""
        return self._of[path]

    def behaviour(self, path: str) -> Callable[[Message, object], Any]:
        """What answers a request of a method."""
        handler = self._of[path]
        found: Callable[[Message, object], Any] = handler.unary_unary or handler.unary_stream
        return found


class LocalError(grpc.RpcError):
    """How a call ended that was not answered: what gRPC's own error tells."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> None:
        super().__init__(details)
        self._code, self._details, self._trailing = code, details, trailing

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:  # pairs, which gRPC's published types want to be of a class of theirs
        return self._trailing


class LocalCaller:
    """Whoever calls from this process: a `Caller`. There is only one, whose calls share the engine as they come."""

    system = "local"
    metadata: Mapping[str, str] = {}
    name = ""

    def __init__(self, timeout_s: float | None) -> None:
        self.deadline = None if timeout_s is None else time.perf_counter() + timeout_s

    def tell(self, call: Call) -> None:
        """Its answer says all."""

    async def refuse(self, call: Call, error: ServerError) -> None:
        """Raises what the client makes its error of."""
        trailing = (*error_metadata(error), *call_metadata(call))
        raise LocalError(status_code(error), error.message, trailing) from error

    def leaving(self) -> str:
        passed = self.deadline is not None and self.deadline <= time.perf_counter()
        return "DEADLINE_EXCEEDED" if passed else "CANCELLED"


class LocalChannel:
    """As much of a `grpc.Channel` as the client's stubs take. May be shared between threads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handlers: Handlers,
        calls: ObservedCalls,
        max_message_bytes: int,
        close: Callable[[], None],
    ) -> None:
        """`loop`: on which handlers run. close: ends what is behind them."""
        self._loop, self._handlers, self._calls, self.close = loop, handlers, calls, close
        self._max_message_bytes = max_message_bytes
        self._closed, self._lock, self._process = False, threading.Lock(), os.getpid()

    def unary_unary(self, path: str, **_: object) -> "UnaryMethod":
        return UnaryMethod(self, path)

    def unary_stream(self, path: str, **_: object) -> "Callable[..., LocalStream]":
        def call(request: Message, timeout: float | None = None, **_: object) -> LocalStream:
            return LocalStream(self, path, request, timeout)

        return call

    def stream_stream(self, path: str, **_: object) -> Callable[..., object]:
        def call(*_: object, **__: object) -> object:
            raise NotImplementedError(f"{path} takes a stream of requests: no method of the client makes one")

        return call

    def answer(self, path: str, request: Message, timeout_s: float | None) -> Future[Any]:
        """Has a request answered."""

        async def work() -> Any:
            return await self._handlers.behaviour(path)(request, None)

        return self._begin(self._called(path, request, timeout_s, work))

    def answers(
        self, path: str, request: Message, timeout_s: float | None, tell: Callable[[object], None]
    ) -> Future[None]:
        """Has a request answered by a stream, each message of which `tell` is told on the event loop."""

        async def work() -> None:
            messages: AsyncIterator[object] = self._handlers.behaviour(path)(request, None)
            async with aclosing(messages):  # type: ignore[type-var]  # a generator, as all handlers of streams are
                async for message in messages:
                    tell(message)

        return self._begin(self._called(path, request, timeout_s, work))

    def end(self) -> None:
        """No call is begun any more. Those that were are on the event loop before anything that is put there now."""
        with self._lock:
            self._closed = True

    def forget(self) -> None:
        """All calls have ended: nothing of the models is kept by whoever still has the channel."""
        self._handlers = Handlers()

    def _begin(self, call: Coroutine[Any, Any, Any]) -> Future[Any]:
        if here := os.getpid() == self._process:
            with self._lock:
                if not self._closed:
                    return asyncio.run_coroutine_threadsafe(call, self._loop)
        call.close()
        state = "closed" if here else "of the process that this one was forked from, and has no engine here"
        raise ValueError(f"the translator is {state}: make another one")

    async def _called(
        self, path: str, request: Message, timeout_s: float | None, work: Callable[[], Coroutine[Any, Any, Any]]
    ) -> Any:
        """Raises LocalError."""
        caller = LocalCaller(timeout_s)
        try:
            async with asyncio.timeout(timeout_s), self._calls.observed(path.removeprefix("/"), caller):
                if (size := request.ByteSize()) > self._max_message_bytes:
                    raise MessageTooLarge(size, self._max_message_bytes)
                return await work()
        except TimeoutError as error:
            raise LocalError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from error


def ended(call: Future[Any]) -> Any:
    """What a call came to. Raises LocalError."""
    try:
        return call.result()
    except CancelledError as error:  # it had not yet begun when the translator was closed
        refused = Draining()
        raise LocalError(status_code(refused), refused.message, error_metadata(refused)) from error


class UnaryMethod:
    """A method with one answer."""

    def __init__(self, channel: LocalChannel, path: str) -> None:
        self._channel, self._path = channel, path

    def future(self, request: Message, timeout: float | None = None, **_: object) -> "LocalCall":
        return LocalCall(self._channel.answer(self._path, request, timeout))

    def __call__(self, request: Message, timeout: float | None = None, **_: object) -> Any:
        return ended(self._channel.answer(self._path, request, timeout))


class LocalCall:
    """A call under way: as much of gRPC's as the client asks of it."""

    def __init__(self, answer: Future[Any]) -> None:
        self._answer = answer

    def cancel(self) -> bool:
        return self._answer.cancel()

    def result(self) -> Any:
        return ended(self._answer)

    def add_done_callback(self, told: Callable[["LocalCall"], object]) -> None:
        self._answer.add_done_callback(lambda _: told(self))

    def trailing_metadata(self) -> Metadata:
        return ()


class LocalStream:
    """A stream under way. There are no more messages than its text gets tokens, so that none has to wait."""

    def __init__(self, channel: LocalChannel, path: str, request: Message, timeout_s: float | None) -> None:
        self._messages = SimpleQueue[object]()
        self._end = object()
        self._answered = channel.answers(path, request, timeout_s, self._messages.put)
        self._answered.add_done_callback(lambda _: self._messages.put(self._end))

    def __iter__(self) -> Iterator[object]:
        while (message := self._messages.get()) is not self._end:
            yield message
        ended(self._answered)

    def cancel(self) -> bool:
        return self._answered.cancel()

    def trailing_metadata(self) -> Metadata:
        return ()
