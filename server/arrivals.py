"""What has begun to come in and is not all there."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

PROMPT_S = 0.25
"""What is not there by then is slow. A message of some ten kilobytes is, from the other side of the world."""
MOST_MESSAGES = 32
"""Messages that may be coming in. Of 5,000 calls at once, on a machine that is busy, 19 are."""
SLOW_BYTES = 64 * 1024 * 1024
"""Memory of messages that are slow, at most."""
SLACK_BYTES = 256 * 1024
"""So much larger than ours may be, and no larger than twice, gRPC itself takes a message: it is then we who refuse it,
with details."""


@dataclass(frozen=True, slots=True)
class Messages:
    """How much memory requests may take that are not all there.

    gRPC says how long one is when all of it is in memory. So each counts as the largest.
    """

    max_bytes: int
    """Of a request."""

    @property
    def transport_bytes(self) -> int:
        """What gRPC takes of one."""
        return self.max_bytes + min(self.max_bytes, SLACK_BYTES)

    @property
    def most_slow(self) -> int:
        """How many may be slow."""
        return min(MOST_MESSAGES, max(1, SLOW_BYTES // self.transport_bytes))


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
