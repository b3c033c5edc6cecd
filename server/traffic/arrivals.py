"""What has begun to come in and is not all there."""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

PROMPT_S = 0.25
"""What is not there by then is slow. A message of some ten kilobytes is, from the other side of the world."""
TURNS = 8
"""Of the event loop, which those who are coming get before one of them is given up: many may be there already."""
LINE = 3
"""So many times as many as may come in may wait until they may."""
SIEGE_S, WHOLE = 10.0, 0.1
"""Where, of as many slow ones as may come in at a time, no larger share became whole, and the last was given up not
longer ago than that, somebody means it."""
BESIEGED = 0.2
"""Share of the places that are left then. What is held back in them is memory."""


class Arrivals:
    """Bounds how long anything may take to come in, and how many do at a time. Used on one event loop.

    For one more than that, one is given up: of the caller who has the most of them, what has been coming for the
    longest. So who is prompt is let in, whatever others hold back, and so is who is slow, beside one who floods. But
    nobody is given up for another one of the same caller, nor for one of a caller with as many, before that one has
    waited for PROMPT_S, unless very many wait. While hardly any that is slow becomes whole, fewer may come in.
    """

    def __init__(self, most: int, most_slow: int, timeout_s: float) -> None:
        """most_slow: of them, so many may take longer than PROMPT_S."""
        self._most, self._most_slow, self._timeout_s = most, most_slow, timeout_s
        self._coming: dict[asyncio.Timeout, str] = {}
        """Whose each is: the oldest first."""
        self._slow: dict[asyncio.Timeout, str] = {}
        self._line: dict[asyncio.Future[None], None] = {}
        """Those that wait until they may come in, the oldest first."""
        self._ends = deque[bool](maxlen=most)
        """Whether the last became whole, of those that were slow or were given up."""
        self._given_up_s = -math.inf
        """When the last one was, by the clock of the event loop."""

    async def wait(self, come: Callable[[], Awaitable[T]], caller: str) -> T:
        """What `come` waits for. Raises TimeoutError."""
        async with asyncio.timeout(self._timeout_s) as patience:
            await self._turn(caller)
            self._add(patience, caller, self._coming, self._most)
            slow = asyncio.get_running_loop().call_later(
                PROMPT_S, self._add, patience, caller, self._slow, self._most_slow
            )
            try:
                came = await come()
                if patience in self._slow:
                    self._ends.append(True)
                return came
            finally:
                slow.cancel()
                for held in (self._coming, self._slow):
                    held.pop(patience, None)
                self._next()

    async def _turn(self, caller: str) -> None:
        """Returns where there is room, or one is to be given up for it."""
        for _ in range(TURNS):
            if not self._full:
                return
            await asyncio.sleep(0)
        if self._is_modest(caller):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(PROMPT_S):
                while self._full and len(self._line) < LINE * self._most:
                    turn = asyncio.get_running_loop().create_future()
                    self._line[turn] = None
                    try:
                        await turn
                    finally:
                        self._line.pop(turn, None)

    def _next(self) -> None:
        """There is room for one."""
        for turn in self._line:
            if not turn.done():
                turn.set_result(None)
                return

    def _add(self, patience: asyncio.Timeout, caller: str, held: dict[asyncio.Timeout, str], most: int) -> None:
        """Ends the patience with some of them if they are as many as may be."""
        while len(held) >= self._room(most):
            [(greediest, _)] = Counter([*held.values(), caller]).most_common(1)  # of equals, whose oldest is the oldest
            oldest = next(one for one, its in held.items() if its == greediest)
            del held[oldest]
            if not oldest.expired():  # else it is on its way out already, given up by the other count or by its time
                self._ends.append(False)
                self._given_up_s = asyncio.get_running_loop().time()
                oldest.reschedule(0)
        held[patience] = caller

    def _is_modest(self, caller: str) -> bool:
        """Somebody has more than this caller, one more included."""
        counts = Counter(self._coming.values())
        return counts[caller] + 1 < max(counts.values(), default=0)

    def _room(self, most: int) -> int:
        return max(1, round(most * BESIEGED)) if self._besieged else most

    @property
    def _full(self) -> bool:
        return len(self._coming) >= self._room(self._most)

    @property
    def _besieged(self) -> bool:
        none = len(self._ends) == self._most and sum(self._ends) <= WHOLE * self._most
        return none and asyncio.get_running_loop().time() < self._given_up_s + SIEGE_S
