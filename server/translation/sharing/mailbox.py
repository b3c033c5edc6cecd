"""The way of the engine's events to the event loop."""

import asyncio
from collections import deque
from collections.abc import Callable

from engine.request import Event


class Mailbox:
    """Wakes the event loop once for all events that come before it gets to them: a step may have one for every row."""

    def __init__(self) -> None:
        self._posted: deque[tuple[Callable[[Event], None], Event]] = deque()
        self._woken = False
        """The loop will look, and has not looked yet."""

    def post(self, loop: asyncio.AbstractEventLoop, tell: Callable[[Event], None], event: Event) -> None:
        """Has somebody told of an event on the loop. Called on an engine thread. RuntimeError: the loop is closed."""
        self._posted.append((tell, event))
        if not self._woken:
            self._woken = True
            try:
                loop.call_soon_threadsafe(self._hand_out)
            except RuntimeError:
                self._woken = False
                raise

    def _hand_out(self) -> None:
        self._woken = False  # first: what is posted from now on may come too late for this look
        while self._posted:
            tell, event = self._posted.popleft()
            tell(event)
