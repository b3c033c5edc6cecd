"""An event loop on which time passes only while nobody has anything to do: no machine is too slow for it."""

import asyncio
import selectors


class VirtualTime(asyncio.SelectorEventLoop):
    """Skips what it would wait. Whoever is asleep is woken at the same moment of the loop's own time on every machine.

    For tests without threads and connections: time would run away from what these do.
    """

    def __init__(self) -> None:
        self._waiting = _Skipped()
        super().__init__(self._waiting)

    def time(self) -> float:
        """Seconds since it was made."""
        return self._waiting.passed_s

    def stand_still(self, seconds: float) -> None:
        """So long nobody has a turn, as where the system has stopped the process."""
        self._waiting.passed_s += seconds


class _Skipped(selectors.SelectSelector):
    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(None if timeout is None else 0.0)
        if timeout and not found:
            self.passed_s += timeout
        return found
