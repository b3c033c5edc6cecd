"""Time that an event loop had its turns in."""

import asyncio
from collections.abc import Callable

PARTS = 5


class Timer:
    """Calls something after so many seconds, of which an event loop that is late loses none.

    It looks PARTS times, so that who waits for the same machine as those waited for is not said to be slow.
    """

    def __init__(self, seconds: float, call: Callable[[], object]) -> None:
        self._part_s, self._call, self._left = seconds / PARTS, call, PARTS
        self._next()

    def cancel(self) -> None:
        """Does not call it any more."""
        self._handle.cancel()

    def _next(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._part_s, self._look)

    def _look(self) -> None:
        self._left -= 1
        if self._left:
            self._next()
        else:
            self._call()
