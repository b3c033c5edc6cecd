"""A call and its further attempts, synchronous or of asyncio. See `dragoman.retries`."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from itertools import count
from typing import Any, Generic, TypeVar

import grpc

from dragoman.errors import from_rpc
from dragoman.retries import Retries

R = TypeVar("R")


REACHED_S = 0.5
"""How long it may take to find out that a server is there."""


class Calls:
    """How the calls of one client are made."""

    def __init__(self, wait_for_ready: bool, reach: Callable[..., Any]) -> None:
        """wait_for_ready: a call waits for a server that is not there. Else it fails at once.

        reach: any call that costs a server nothing, with the options of gRPC
        """
        self._wait_for_ready, self._reach, self.retries = wait_for_ready, reach, Retries(wait_for_ready)

    def options(self, left_s: float) -> dict[str, Any]:
        """What gRPC is told of an attempt."""
        return {"timeout": max(left_s, 0.0), "wait_for_ready": self._wait_for_ready}

    def reason(self, error: grpc.RpcError) -> grpc.RpcError:
        """Why a call failed that has perhaps only waited for a server: then, why there is none."""
        if self._may_be_unreachable(error):
            try:
                self._reach(timeout=REACHED_S)
            except grpc.RpcError as unreachable:
                return self._of(error, unreachable)
        return error

    async def reason_async(self, error: grpc.RpcError) -> grpc.RpcError:
        """See `reason`."""
        if self._may_be_unreachable(error):
            try:
                await self._reach(timeout=REACHED_S)
            except grpc.RpcError as unreachable:
                return self._of(error, unreachable)
        return error

    def _may_be_unreachable(self, error: grpc.RpcError) -> bool:
        return self._wait_for_ready and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    @staticmethod
    def _of(error: grpc.RpcError, unreachable: grpc.RpcError) -> grpc.RpcError:
        return unreachable if unreachable.code() is grpc.StatusCode.UNAVAILABLE else error


class Pending(Generic[R]):
    """A synchronous call under way."""

    def __init__(self, calls: Calls, start: "Callable[..., grpc.Future[R]]", timeout_s: float) -> None:
        """Starts it. start: makes an attempt with the options of `Calls`."""
        self._calls, self._start, self._ends = calls, start, time.monotonic() + timeout_s
        self._attempt = start(**calls.options(timeout_s))

    def cancel(self) -> bool:
        """Nobody waits for it any more."""
        return self._attempt.cancel()

    def result(self) -> R:
        """The answer of the first attempt that gets one. Raises grpc.RpcError."""
        for attempt in count(1):
            try:
                answer = self._attempt.result()
            except grpc.RpcError as error:
                delay_s = self._calls.retries.delay_s(error, attempt, self._ends - time.monotonic())
                if delay_s is None:
                    raise self._calls.reason(error) from error
                time.sleep(delay_s)
                self._attempt = self._start(**self._calls.options(self._ends - time.monotonic()))
            else:
                self._calls.retries.succeeded()
                return answer
        raise AssertionError("attempts have no end")


async def answered(calls: Calls, start: Callable[..., Awaitable[R]], timeout_s: float) -> R:
    """The answer of the first attempt that gets one. Raises grpc.RpcError.

    start: makes an attempt with the options of `Calls`
    """
    ends = time.monotonic() + timeout_s
    for attempt in count(1):
        try:
            answer = await start(**calls.options(ends - time.monotonic()))
        except grpc.RpcError as error:
            delay_s = calls.retries.delay_s(error, attempt, ends - time.monotonic())
            if delay_s is None:
                raise await calls.reason_async(error) from error
            await asyncio.sleep(delay_s)
        else:
            calls.retries.succeeded()
            return answer
    raise AssertionError("attempts have no end")


def streamed(calls: Calls, start: Callable[..., Any], timeout_s: float) -> Generator[Any]:
    """The messages of a stream, of the first attempt that brings one. Raises DragomanError."""
    ends = time.monotonic() + timeout_s
    for attempt in count(1):
        call, said = start(**calls.options(ends - time.monotonic())), False
        try:
            for message in call:
                said = True
                yield message
            calls.retries.succeeded()
            return
        except grpc.RpcError as error:
            delay_s = None if said else calls.retries.delay_s(error, attempt, ends - time.monotonic())
            if delay_s is None:
                raise from_rpc(error if said else calls.reason(error)) from error
        finally:
            call.cancel()
        time.sleep(delay_s)


async def streamed_async(calls: Calls, start: Callable[..., Any], timeout_s: float) -> AsyncGenerator[Any]:
    """See `streamed`."""
    ends = time.monotonic() + timeout_s
    for attempt in count(1):
        call, said = start(**calls.options(ends - time.monotonic())), False
        try:
            async for message in call:
                said = True
                yield message
            calls.retries.succeeded()
            return
        except grpc.RpcError as error:
            delay_s = None if said else calls.retries.delay_s(error, attempt, ends - time.monotonic())
            if delay_s is None:
                raise from_rpc(error if said else await calls.reason_async(error)) from error
        finally:
            call.cancel()
        await asyncio.sleep(delay_s)
