"""Who may enter: a call is refused at once, before it costs anything, rather than kept waiting for long."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from server.errors import Overloaded, ServerError

WINDOW = 64
"""Answers that tell how fast the server is just now."""
RETRY_S = (0.05, 30.0)
"""Shortest and longest advice. Shorter would bring callers back before anything changed."""
FIRST_RETRY_S = 1.0
"""Advice before there were answers to learn from."""


class Admission:
    """Keeps the queue short. Used on the event loop only."""

    def __init__(
        self, max_waiting: int, waiting: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`waiting`: how many contents are in the engine's queue."""
        self._max_waiting = max_waiting
        self._waiting = waiting
        self._clock = clock
        self._reserved = 0
        """Contents that were let in and are not in the queue yet."""
        self._refusal: Callable[[], ServerError] | None = None
        self._answers: deque[float] = deque(maxlen=WINDOW)
        """When the last contents were answered."""

    @contextmanager
    def permit(self, contents: int) -> Iterator[None]:
        """Keeps room in the queue for a call while it is made ready. Raises Overloaded, or what `close` was given."""
        if self._refusal is not None:
            raise self._refusal()
        queued = self._waiting() + self._reserved
        if not queued:  # the pace so far was the callers', not the server's
            self._answers.clear()
        waiting = queued + contents
        if waiting > self._max_waiting:
            raise Overloaded(waiting, self._max_waiting, self._retry_after_s(waiting - self._max_waiting))
        self._reserved += contents
        try:
            yield
        finally:
            self._reserved -= contents

    def answered(self) -> None:
        """A content left the server."""
        self._answers.append(self._clock())

    def close(self, refusal: Callable[[], ServerError]) -> None:
        """Refuses every call from now on, for the given reason."""
        self._refusal = refusal

    def _retry_after_s(self, excess: int) -> float:
        """When there should be room for so many more contents, at the speed of the last answers."""
        if len(self._answers) < 2:
            return FIRST_RETRY_S
        seconds_each = (self._answers[-1] - self._answers[0]) / (len(self._answers) - 1)
        shortest, longest = RETRY_S
        return min(max(excess * seconds_each, shortest), longest)
