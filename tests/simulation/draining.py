"""The server's own `drain`, on an event loop that has the simulation's clock and makes its turns between its events."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from server.admission.permits import Admission
from server.errors import ServerError
from server.grpc.health import Health
from server.lifecycle import FLUSH_S, drain


class Callers(Protocol):
    """Those who wait for an answer."""

    def waiting(self) -> int: ...

    def leave(self, why: str) -> None:
        """All of them are told so, or cut off."""
        ...


class Drain:
    """Stands in for gRPC's server and for the calls of `ObservedCalls`: two seams, and no network behind them."""

    def __init__(self, callers: Callers, now: Callable[[], float], ended: Callable[[], None]) -> None:
        """ended: what comes after it."""
        self._callers, self._now, self._ended = callers, now, ended
        self._idle = asyncio.Event()
        self._loop: asyncio.SelectorEventLoop | None = None
        """From the beginning to the end."""

    def begin(self, admissions: Sequence[Admission], grace_s: float) -> None:
        """The process was asked to end. Again is of no account. `time.monotonic` is the simulation's."""
        if self._loop is None:
            self._loop = asyncio.SelectorEventLoop()
            self._draining = self._loop.create_task(self._drain(admissions, grace_s))

    def turn(self) -> float | None:
        """Does what is due by now. Returns when it has something to do again, unless somebody leaves before."""
        loop: Any = self._loop
        if loop is None or loop.is_closed():
            return None
        if not self._callers.waiting():
            self._idle.set()
        loop.call_soon(loop.stop)
        loop.run_forever()
        while loop._ready:
            loop.call_soon(loop.stop)
            loop.run_forever()
        if self._draining.done():
            loop.close()
            self._draining.result()
            return None
        return min((timer.when() for timer in loop._scheduled if not timer.cancelled()), default=None)

    def close(self) -> None:
        """Gives back what the loop has, though it may not have ended."""
        if self._loop is not None and not self._loop.is_closed():
            self._draining.cancel()
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()
            self._loop.close()

    async def _drain(self, admissions: Sequence[Admission], grace_s: float) -> None:
        began, health, seams = self._now(), Health(()), cast(Any, self)
        await drain(seams, health, admissions, seams, grace_s, asyncio.Event())
        assert self._now() - began <= grace_s + FLUSH_S + 1e-6, "draining takes longer than it may"
        assert health.state == "draining"
        assert not self._callers.waiting(), "the server has ended, and somebody waits"
        self._ended()

    # grpc.aio.Server

    async def stop(self, grace_s: float | None) -> None:
        """Waits until all calls have ended, and cuts off those that have not by then."""
        if grace_s is not None:
            await asyncio.wait([asyncio.ensure_future(self._idle.wait())], timeout=grace_s)
        if self._callers.waiting():
            self._callers.leave("is cut off")
        self._idle.set()

    # ObservedCalls

    @property
    def running(self) -> int:
        return self._callers.waiting()

    async def wait_until_idle(self) -> None:
        await self._idle.wait()

    def end(self, error: ServerError) -> None:
        self._callers.leave(f"is told {error.reason}")
        self._idle.set()
