"""Calls of asyncio, made again as long as that may help."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import grpc

from dragoman.calls.attempts import Attempts, Calls, ClientClosed, Start
from dragoman.calls.retries import is_unavailable
from dragoman.errors import from_rpc, rpc_errors

M = TypeVar("M")


async def answered(calls: Calls[M], start: Start[M], timeout_s: float) -> Any:
    """The answer of the first attempt that gets one. Raises grpc.RpcError."""
    attempts = Attempts(calls, timeout_s)
    once = _attempted if calls.hedge_after_s is None else _hedged
    while True:
        try:
            return await once(attempts, start)
        except ClientClosed:
            raise
        except grpc.RpcError as error:
            delay_s = attempts.delay_s(error)
            if delay_s is None:
                raise await calls.reason_async(error, attempts.last) from error
        await calls.rest_async(delay_s)


async def _attempted(attempts: Attempts[M], start: Start[M]) -> Any:
    server, call = attempts.begin(start)
    try:
        answer, trailing = await call, await call.trailing_metadata()
    except grpc.RpcError as error:
        attempts.failed(server, error)
        raise
    except asyncio.CancelledError:
        attempts.left(server)
        _check_closed(attempts)
        raise
    attempts.answered(server, trailing)
    return answer


async def _hedged(attempts: Attempts[M], start: Start[M]) -> Any:
    """The first answer of up to two attempts, or the error of the last."""
    running = {asyncio.ensure_future(_attempted(attempts, start))}
    try:
        while True:
            done, running = await asyncio.wait(
                running, timeout=attempts.hedge_in_s(), return_when=asyncio.FIRST_COMPLETED
            )
            if not done and attempts.hedges():
                running.add(asyncio.ensure_future(_attempted(attempts, start)))
            errors = {attempt: attempt.exception() for attempt in done}
            answers = [attempt for attempt, error in errors.items() if error is None]
            final = [attempt for attempt, error in errors.items() if not running or not _unavailable(error)]
            for attempt in answers or final:
                return attempt.result()
            for error in errors.values():
                if isinstance(error, grpc.RpcError):
                    attempts.replace(error)
    finally:
        for attempt in running:
            attempt.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _check_closed(attempts: Attempts[M]) -> None:
    """Raises grpc.RpcError where a client was closed: gRPC ends its calls as if somebody had cancelled their tasks."""
    task = asyncio.current_task()
    if attempts.closed and not (task and task.cancelling()):
        raise ClientClosed


def _unavailable(error: BaseException | None) -> bool:
    return isinstance(error, grpc.RpcError) and is_unavailable(error)


async def streamed_async(calls: Calls[M], start: Start[M], timeout_s: float) -> AsyncGenerator[Any]:
    """See `streamed`."""
    calls.check_open()
    attempts = Attempts(calls, timeout_s)
    while True:
        with rpc_errors():
            (server, call), said = attempts.begin(start), False
        try:
            async for message in call:
                said = True
                yield message
            trailing = await call.trailing_metadata()
        except grpc.RpcError as error:
            attempts.failed(server, error)
            delay_s = None if said else attempts.delay_s(error)
            if delay_s is None:
                raise from_rpc(await calls.reason_async(error, server, said)) from error
        except BaseException as error:
            call.cancel()
            attempts.left(server)
            if isinstance(error, asyncio.CancelledError):
                with rpc_errors():
                    _check_closed(attempts)
            raise
        else:
            attempts.answered(server, trailing)
            return
        await calls.rest_async(delay_s)
