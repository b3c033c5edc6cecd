"""Messages handed to the handlers of a server as gRPC hands them over, which leaves gRPC's own work out.

Most of what a small message costs is gRPC, on both sides of it. What is ours sees no difference.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable, Sequence
from typing import Any

import grpc

from server.grpc.rpc import RpcInterceptor
from tests.fakes import WAIT_S

Metadata = Sequence[tuple[str, str | bytes]]


class HandedCall:
    """As much of a `grpc.aio.ServicerContext` as `server.grpc.rpc` asks of it. Used once."""

    def __init__(self, coming: Iterable[bytes], timeout_s: float) -> None:
        self.answers = deque[bytes]()
        self.code, self.details, self.trailing = grpc.StatusCode.OK, "", tuple[tuple[str, str | bytes], ...]()
        self._coming, self._timeout_s = iter(coming), timeout_s

    async def read(self) -> object:
        return next(self._coming, grpc.aio.EOF)

    async def write(self, data: bytes) -> None:
        self.answers.append(data)

    async def send_initial_metadata(self, _: Metadata) -> None:
        pass

    def set_trailing_metadata(self, trailing: Metadata) -> None:
        self.trailing = tuple(trailing)

    async def abort(self, code: grpc.StatusCode, details: str, trailing: Metadata) -> None:
        self.code, self.details, self.trailing = code, details, tuple(trailing)
        raise grpc.aio.AbortError

    def invocation_metadata(self) -> Metadata:
        return ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def time_remaining(self) -> float:
        return self._timeout_s

    async def ended(self, handler: Callable[[object, object], Coroutine[Any, Any, bytes | None]]) -> None:
        """Has it answered. Raises AioRpcError where it is refused, and whatever else the handler raises."""
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await asyncio.create_task(handler(None, self))
        except grpc.aio.AbortError:
            trailing = grpc.aio.Metadata(*self.trailing)
            raise grpc.aio.AioRpcError(self.code, grpc.aio.Metadata(), trailing, self.details) from None
        if answer is not None:
            self.answers.append(answer)


class HandedChannel:
    """As much of a `grpc.aio.Channel` as the fuzzer asks of it. Each method must have been called by gRPC before."""

    def __init__(self, interceptor: RpcInterceptor) -> None:
        self._interceptor = interceptor

    def unary_unary(self, path: str) -> Callable[..., Coroutine[Any, Any, bytes]]:
        async def call(data: bytes, timeout: float = WAIT_S) -> bytes:
            handed = HandedCall([data], timeout)
            await handed.ended((await self._handler(path)).stream_unary)
            return handed.answers.pop()

        return call

    def unary_stream(self, path: str) -> Callable[..., AsyncGenerator[bytes]]:
        def call(data: bytes, timeout: float = WAIT_S) -> AsyncGenerator[bytes]:
            return self._stream(path, [data], timeout)

        return call

    def stream_stream(self, path: str) -> Callable[..., AsyncGenerator[bytes]]:
        async def call(coming: AsyncIterable[bytes], timeout: float = WAIT_S) -> AsyncGenerator[bytes]:
            async for answer in self._stream(path, [data async for data in coming], timeout):
                yield answer

        return call

    async def _stream(self, path: str, coming: Iterable[bytes], timeout_s: float) -> AsyncGenerator[bytes]:
        """What it has answered, once it has ended."""
        handed = HandedCall(coming, timeout_s)
        await handed.ended((await self._handler(path)).stream_stream)
        for answer in handed.answers:
            yield answer

    async def _handler(self, path: str) -> Any:
        async def unknown(_: grpc.HandlerCallDetails) -> None:
            raise AssertionError(f"{path} was not called by gRPC before")

        details: Any = _Details(path)
        return await self._interceptor.intercept_service(unknown, details)


class _Details:
    """Of a call."""

    def __init__(self, method: str) -> None:
        self.method = method
