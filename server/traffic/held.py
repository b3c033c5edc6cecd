"""Requests that are being answered."""

import asyncio
from collections import Counter

from server.errors import RequestsTooLarge
from server.errors.retry import apart
from server.traffic.bounds import SMALL_BYTES

RETRY_S = 1.0
"""When to come back. Small requests are refused hardly ever, and large ones take about so long."""
OF_ONE = 7 / 8
"""Share of the room that one caller may have."""


class Held:
    """Bounds how much memory they take: what a request says stays until its call ends. Used on one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[asyncio.Task[object], tuple[int, str]] = {}
        """By what answers it."""
        self._of = Counter[str]()
        """Bytes of each caller."""

    def begin(self, size: int, caller: str) -> None:
        """The task that this is called in answers a request of so many bytes, and no other one any more.

        A request is let in where nothing is held, whatever its size. Raises RequestsTooLarge.
        """
        task = asyncio.current_task()
        assert task is not None
        self._end(task)
        if size <= SMALL_BYTES:
            return
        held, own = self._of.total(), self._of[caller]
        if (held and held + size > self._most_bytes) or (own and own + size > OF_ONE * self._most_bytes):
            raise RequestsTooLarge(size, held, self._most_bytes, apart(RETRY_S))
        self._held[task] = size, caller
        task.add_done_callback(self._end)
        self._of[caller] += size

    def _end(self, task: asyncio.Task[object]) -> None:
        task.remove_done_callback(self._end)
        if task not in self._held:
            return
        size, caller = self._held.pop(task)
        self._of[caller] -= size
        if not self._of[caller]:
            del self._of[caller]
