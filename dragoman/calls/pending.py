"""Calls of synchronous code, made again as long as that may help."""

from collections.abc import Generator
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import grpc

from dragoman.calls.attempts import Attempts, Calls, Start
from dragoman.calls.retries import is_unavailable
from dragoman.calls.servers import Server
from dragoman.errors import from_rpc, rpc_errors

M = TypeVar("M")
R = TypeVar("R")


class Pending(Generic[M, R]):
    """A synchronous call under way."""

    def __init__(self, calls: Calls[M], start: Start[M], timeout_s: float) -> None:
        """Starts it."""
        self._calls, self._start, self._attempts = calls, start, Attempts(calls, timeout_s)
        self._ended: SimpleQueue[tuple[Server[M], Any]] = SimpleQueue()
        self._running = dict[Any, Server[M]]()
        self._begin()

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        for call, server in self._running.items():
            call.cancel()
            self._attempts.left(server)
        self._running.clear()

    def result(self) -> R:
        """The answer of the first attempt that gets one. Raises grpc.RpcError."""
        while True:
            try:
                return self._first()
            except grpc.RpcError as error:
                delay_s = self._attempts.delay_s(error)
                if delay_s is None:
                    raise self._calls.reason(error, self._attempts.last) from error
            self._calls.rest(delay_s)
            self._begin()

    def _begin(self) -> None:
        server, call = self._attempts.begin(self._start)
        self._running[call] = server
        call.add_done_callback(lambda ended: self._ended.put((server, ended)))

    def _first(self) -> R:
        """The first answer of the attempts that run, or the error of the last."""
        while True:
            try:
                server, call = self._ended.get(timeout=self._attempts.hedge_in_s())
            except Empty:
                if self._attempts.hedges():
                    self._begin()
                continue
            self._running.pop(call)
            try:
                answer: R = call.result()
            except grpc.RpcError as error:
                self._attempts.failed(server, error)
                if self._running and is_unavailable(error):
                    self._attempts.replace(error)
                    continue
                self.cancel()
                raise
            self._attempts.answered(server, call.trailing_metadata())
            self.cancel()
            return answer


def streamed(calls: Calls[M], start: Start[M], timeout_s: float) -> Generator[Any]:
    """The messages of a stream, of the first attempt that brings one. Raises DragomanError."""
    calls.check_open()
    attempts = Attempts(calls, timeout_s)
    while True:
        with rpc_errors():
            (server, call), said = attempts.begin(start), False
        try:
            for message in call:
                said = True
                yield message
        except grpc.RpcError as error:
            attempts.failed(server, error)
            delay_s = None if said else attempts.delay_s(error)
            if delay_s is None:
                raise from_rpc(calls.reason(error, server, said)) from error
        except BaseException:
            call.cancel()
            attempts.left(server)
            raise
        else:
            attempts.answered(server, call.trailing_metadata())
            return
        calls.rest(delay_s)
