"""What has begun to come in and is not all there."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

PROMPT_S = 0.25
"""What is not there by then is slow. A message of some ten kilobytes is, from the other side of the world."""
TURNS = 8
"""Of the event loop, which those who are coming get before one of them is given up: many may be there already."""


class Arrivals:
    """Bounds how long anything may take to come in, and how many do at a time. Used on one event loop.

    For one more than that, the one that has been coming for the longest is given up: who is prompt is let in,
    whatever others hold back.
    """

    def __init__(self, most: int, most_slow: int, timeout_s: float) -> None:
        """most_slow: of them, so many may take longer than PROMPT_S."""
        self._most, self._most_slow, self._timeout_s = most, most_slow, timeout_s
        self._coming: dict[asyncio.Timeout, None] = {}
        """The oldest first."""
        self._slow: dict[asyncio.Timeout, None] = {}

    async def wait(self, coming: Awaitable[T]) -> T:
        """What comes in. Raises TimeoutError."""
        async with asyncio.timeout(self._timeout_s) as patience:
            for _ in range(TURNS):
                if len(self._coming) < self._most:
                    break
                await asyncio.sleep(0)
            _add(patience, self._coming, self._most)
            slow = asyncio.get_running_loop().call_later(PROMPT_S, _add, patience, self._slow, self._most_slow)
            try:
                return await coming
            finally:
                slow.cancel()
                for held in (self._coming, self._slow):
                    held.pop(patience, None)


def _add(patience: asyncio.Timeout, held: dict[asyncio.Timeout, None], most: int) -> None:
    """Ends the patience with the oldest of them if they are as many as may be."""
    if len(held) >= most:
        oldest = next(iter(held))
        del held[oldest]
        oldest.reschedule(0)
    held[patience] = None
