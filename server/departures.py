"""Answers on their way out, whose readers may leave them where they are."""

import asyncio


class Departures:
    """Bounds how long answers may stay unread, and how much memory all of them take. Used on one event loop.

    For one that has no room, those that have stayed for the longest are given up: who reads is answered, whatever
    others leave.
    """

    def __init__(self, most_bytes: int, timeout_s: float) -> None:
        self._most_bytes, self._timeout_s = most_bytes, timeout_s
        self._leaving: dict[asyncio.Task[object], int] = {}
        """Their sizes, the oldest first."""
        self._bytes = 0

    def begin(self, size: int) -> None:
        """The task that this is called in sends an answer of so many bytes, and ends once that is read."""
        task = asyncio.current_task()
        assert task is not None
        while self._leaving and self._bytes + size > self._most_bytes:
            oldest = next(iter(self._leaving))
            self._forget(oldest)
            oldest.cancel()
        self._leaving[task] = size
        self._bytes += size
        late = asyncio.get_running_loop().call_later(self._timeout_s, task.cancel)
        task.add_done_callback(lambda _: late.cancel())
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._bytes -= self._leaving.pop(task, 0)
