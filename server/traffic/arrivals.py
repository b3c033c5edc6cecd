"""What has begun to come in and is not all there."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PROMPT_S = 0.25
"""What is not there by then is slow. A message of some ten kilobytes is, from the other side of the world."""
TURNS = 8
"""Of the event loop, which those who are coming get before one of them is given up: many may be there already."""


class Arrivals:
    """Bounds how long anything may take to come in, and how many do at a time. Used on one event loop.

    For one more than that, one is given up: of the caller who has the most of them, what has been coming for the
    longest. So who is prompt is let in, whatever others hold back, and so is who is slow, beside one who floods.
    """

    def __init__(self, most: int, most_slow: int, timeout_s: float) -> None:
        """most_slow: of them, so many may take longer than PROMPT_S."""
        self._most, self._most_slow, self._timeout_s = most, most_slow, timeout_s
        self._coming: dict[asyncio.Timeout, str] = {}
        """Whose each is: the oldest first."""
        self._slow: dict[asyncio.Timeout, str] = {}

    async def wait(self, come: Callable[[], Awaitable[T]], caller: str) -> T:
        """What `come` waits for. Raises TimeoutError."""
        async with asyncio.timeout(self._timeout_s) as patience:
            for _ in range(TURNS):
                if len(self._coming) < self._most:
                    break
                await asyncio.sleep(0)
            _add(patience, caller, self._coming, self._most)
            slow = asyncio.get_running_loop().call_later(PROMPT_S, _add, patience, caller, self._slow, self._most_slow)
            try:
                return await come()
            finally:
                slow.cancel()
                for held in (self._coming, self._slow):
                    held.pop(patience, None)


def _add(patience: asyncio.Timeout, caller: str, held: dict[asyncio.Timeout, str], most: int) -> None:
    """Ends the patience with one of them if they are as many as may be."""
    if len(held) >= most:
        [(greediest, _)] = Counter([*held.values(), caller]).most_common(1)  # of equals, whose oldest is the oldest
        oldest = next(one for one, its in held.items() if its == greediest)
        del held[oldest]
        if not oldest.expired():  # else it is on its way out already, given up by the other count or by its time
            oldest.reschedule(0)
    held[patience] = caller
