"""A call and its further attempts. See `dragoman.calls.retries` and `dragoman.calls.servers`."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import grpc

from dragoman.calls.retries import Retries
from dragoman.calls.servers import Metadata, Server, Servers
from dragoman.channel import check_seconds

M = TypeVar("M")

Start = Callable[[M, float, bool], Any]
"""Makes an attempt, with what a server can be asked, gRPC's `timeout` and its `wait_for_ready`."""
REACHED_S = 0.5
"""How long it may take to find out that a server is there."""


class ClientClosed(grpc.RpcError):
    """Ends the calls that are under way when their client is closed."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED

    def details(self) -> str:
        return "the client was closed while this call was under way"

    def trailing_metadata(self) -> tuple[()]:
        return ()


class Calls(Generic[M]):
    """How the calls of one client are made."""

    def __init__(
        self,
        servers: Sequence[M],
        reach: Callable[..., Any],
        wait_for_ready: bool = True,
        hedge_after_s: float | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """servers: what each can be asked.

        reach: any call that costs a server nothing, with what it can be asked and the options of gRPC
        wait_for_ready: a call waits for a server that is not there. Else it fails, once all have been asked.
        hedge_after_s: a call that has no answer by then is made a second time, and the first answer counts. None: never
        loop: that the calls are made in. None: none, but by threads
        Raises ValueError or TypeError.
        """
        if hedge_after_s is not None:
            check_seconds("hedge_after_s", hedge_after_s)
        self.servers, self.hedge_after_s = Servers(servers), hedge_after_s
        self._wait_for_ready, self._reach, self.retries = wait_for_ready, reach, Retries(wait_for_ready)
        self._loop = loop
        self._closing, self._closing_async = threading.Event(), asyncio.Event()

    @property
    def closed(self) -> bool:
        """The client is: gRPC ends what is under way, and takes no further call."""
        return self._closing.is_set()

    def close(self) -> None:
        """The client is closed from now on."""
        self._closing.set()
        self._closing_async.set()

    def check_open(self) -> None:
        """Raises ValueError, as a closed file does, where the client is closed; RuntimeError in another event loop."""
        if self.closed:
            raise ValueError("this client is closed")
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise RuntimeError("this AsyncClient was made in another event loop: make one in each, which uses it")

    def rest(self, delay_s: float) -> None:
        """Before another attempt; no longer than the client is open."""
        self._closing.wait(delay_s)

    async def rest_async(self, delay_s: float) -> None:
        """See `rest`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing_async.wait(), delay_s)

    def reason(self, error: grpc.RpcError, server: Server[M], said: bool = False) -> grpc.RpcError:
        """Why a call failed: its client was closed, or where it has perhaps only waited for a server, there is none.

        said: the server has begun to answer
        """
        if self._ended_with_client(error):
            return ClientClosed()
        if not said and self._may_be_unreachable(error):
            try:
                self._reach(server.methods, timeout=REACHED_S)
            except grpc.RpcError as unreachable:
                return self._of(error, unreachable)
        return error

    async def reason_async(self, error: grpc.RpcError, server: Server[M], said: bool = False) -> grpc.RpcError:
        """See `reason`."""
        if self._ended_with_client(error):
            return ClientClosed()
        if not said and self._may_be_unreachable(error):
            try:
                await self._reach(server.methods, timeout=REACHED_S)
            except grpc.RpcError as unreachable:
                return self._of(error, unreachable)
        return error

    @property
    def waits(self) -> bool:
        """Whether gRPC is to wait for a server. Of several, it must not wait for one that is not there."""
        return self._wait_for_ready and len(self.servers) == 1

    def _ended_with_client(self, error: grpc.RpcError) -> bool:
        return self.closed and error.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)

    def _may_be_unreachable(self, error: grpc.RpcError) -> bool:
        return self.waits and not self.closed and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    @staticmethod
    def _of(error: grpc.RpcError, unreachable: grpc.RpcError) -> grpc.RpcError:
        return unreachable if unreachable.code() is grpc.StatusCode.UNAVAILABLE else error


class Attempts(Generic[M]):
    """Those of one call."""

    def __init__(self, calls: Calls[M], timeout_s: float) -> None:
        self._calls, self._ends_s, self._failed = calls, time.monotonic() + timeout_s, 0
        self._hedge_s = None if calls.hedge_after_s is None else time.monotonic() + calls.hedge_after_s
        self._tried = list[Server[M]]()

    def begin(self, start: Start[M]) -> tuple[Server[M], Any]:
        """Begins one: where it goes, and the call. One of the three below must follow.

        Raises ClientClosed, or what `start` raises.
        """
        if self.closed:
            raise ClientClosed
        server = self._calls.servers.begin(self._tried)
        self._tried.append(server)
        try:
            return server, start(server.methods, max(0.0, self._ends_s - time.monotonic()), self._calls.waits)
        except BaseException as error:  # a token that cannot be had, or a channel that was closed just now
            self.left(server)
            if self.closed:
                raise ClientClosed from error
            raise

    def answered(self, server: Server[M], trailing: Metadata) -> None:
        """It was the last."""
        self._calls.servers.answered(server, trailing)
        self._calls.retries.succeeded()

    def failed(self, server: Server[M], error: grpc.RpcError) -> None:
        """See `delay_s`."""
        self._calls.servers.failed(server, error)
        self._failed += 1

    def left(self, server: Server[M]) -> None:
        """Nobody waits for it any more."""
        self._calls.servers.left(server)

    def delay_s(self, error: grpc.RpcError) -> float | None:
        """How long to wait after an attempt failed. None: there is none after it."""
        if self.closed:
            return None
        elsewhere = self._calls.servers.has_ready(self._tried)
        return self._calls.retries.delay_s(error, self._failed, self._ends_s - time.monotonic(), elsewhere)

    def hedge_in_s(self) -> float | None:
        """When to begin a second attempt beside the first. None: not at all."""
        return None if self._hedge_s is None else max(0.0, self._hedge_s - time.monotonic())

    def hedges(self) -> bool:
        """Whether that time has come, and calls go well enough for it. Says so once."""
        wanted, self._hedge_s = self._hedge_s is not None, None
        return wanted and self._calls.retries.may_hedge()

    def replace(self, error: grpc.RpcError) -> None:
        """An attempt failed beside one that still runs: when `delay_s` says, there may be a second one again."""
        delay_s = self.delay_s(error)
        self._hedge_s = None if delay_s is None else time.monotonic() + delay_s

    @property
    def closed(self) -> bool:
        """Whether the client is."""
        return self._calls.closed

    @property
    def last(self) -> Server[M]:
        """Where the last attempt went."""
        return self._tried[-1]
