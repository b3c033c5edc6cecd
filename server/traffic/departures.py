"""Answers on their way out, whose readers may leave them where they are."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from server.traffic.bounds import CALL_BYTES

T = TypeVar("T")


class Departures:
    """Bounds how long answers may stay unread, and how much memory all of them take. Used on one event loop.

    For one that has no room, those that have stayed for the longest are given up: who reads is answered, whatever
    others leave. The call of an answer takes memory as well.
    """

    def __init__(self, most_bytes: int, timeout_s: float) -> None:
        self._most_bytes, self._timeout_s = most_bytes, timeout_s
        self._leaving: dict[Callable[[], object], int] = {}
        """What gives one up, and its size: the oldest first."""
        self._bytes = 0

    def begin(self, size: int) -> None:
        """The task that this is called in sends an answer of so many bytes, and ends once that is read."""
        task = asyncio.current_task()
        assert task is not None
        give_up = task.cancel
        self._add(give_up, size)
        late = asyncio.get_running_loop().call_later(self._timeout_s, give_up)

        def ended(_: object) -> None:
            late.cancel()
            self._forget(give_up)

        task.add_done_callback(ended)

    async def wait(self, size: int, going: Awaitable[T]) -> T:
        """Waits until so many bytes are sent, or there is room to send them. Raises TimeoutError."""
        async with asyncio.timeout(self._timeout_s) as patience:

            def give_up() -> None:
                if not patience.expired():  # else it is on its way out already
                    patience.reschedule(0)

            self._add(give_up, size)
            try:
                return await going
            finally:
                self._forget(give_up)

    def _add(self, give_up: Callable[[], object], size: int) -> None:
        size += CALL_BYTES
        while self._leaving and self._bytes + size > self._most_bytes:
            oldest = next(iter(self._leaving))
            self._forget(oldest)
            oldest()
        self._leaving[give_up] = size
        self._bytes += size

    def _forget(self, give_up: Callable[[], object]) -> None:
        self._bytes -= self._leaving.pop(give_up, 0)
