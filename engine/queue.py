"""Where requests wait for a row, and who comes next."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from engine.request import Request

MAX_JOINING = 32
"""Most requests that join a running batch between two steps: its rows wait while their sources are encoded."""
JOINING_TOKENS = 2048
"""Most source tokens of those that join together, but that one may always join: the memory of an encoder run grows with
them, and sources of equal length are encoded together. Thirty-two sources of 512 tokens took a gigabyte."""


class Queue(Protocol):
    """Requests that wait. Not safe for threads by itself: `engine.runner.Runner` holds a lock around every call."""

    def __len__(self) -> int: ...

    def put(self, request: Request) -> None:
        """A request has come."""
        ...

    def discard(self, request: Request) -> bool:
        """Takes a request out, wherever it stands. False: it is not here."""
        ...

    def clear(self) -> list[Request]:
        """Takes all requests out."""
        ...

    def share(self, worker: int, free_rows: Sequence[int], now: float) -> list[Request]:
        """Takes out what this worker is to admit now, at most `free_rows[worker]` rows of it.

        free_rows: of every worker. now: by time.perf_counter
        """
        ...


class ArrivalQueue:
    """First come, first served.

    A request that needs more rows than are free waits, and those behind it wait too, so that wide beams are not starved
    by narrow ones.
    """

    def __init__(self) -> None:
        self._requests: OrderedDict[Request, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._requests)

    def put(self, request: Request) -> None:
        self._requests[request] = None

    def discard(self, request: Request) -> bool:
        found = request in self._requests
        self._requests.pop(request, None)
        return found

    def clear(self) -> list[Request]:
        requests, self._requests = list(self._requests), OrderedDict()
        return requests

    def share(self, worker: int, free_rows: Sequence[int], now: float) -> list[Request]:
        """As many as leave each worker equally many free rows.

        A worker that took all that fits would leave the others idle. But the one with the most free rows takes what
        fits nowhere else.
        """
        coming = sum(request.rows for request in islice(self._requests, MAX_JOINING * len(free_rows)))
        even, most, rows = (sum(free_rows) - coming) // len(free_rows), max(free_rows), free_rows[worker]
        taken: list[Request] = []
        tokens = 0
        for request in islice(self._requests, MAX_JOINING):
            left = rows - request.rows
            tokens += len(request.source_ids)
            if left < 0 or (left < even and rows < most) or (taken and tokens > JOINING_TOKENS):
                break
            taken.append(request)
            rows = left
        for request in taken:
            del self._requests[request]
        return taken
