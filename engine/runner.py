"""The loop: receive, admit, step, deliver. One queue, and a thread with a running batch of its own for each worker."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from types import TracebackType
from typing import Generic, Self

from engine.decoder import Decoder, S
from engine.request import Failed, Request
from engine.running_batch import RunningBatch
from engine.search import EndRules
from server.errors import Draining, EngineStopped
from server.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

MAX_JOINING = 32
"""Most requests that an engine admits between two steps: the rows that run wait while their sources are encoded."""


class Runner(Generic[S]):
    """Runs requests on worker threads, first come first served. Use it as a context manager.

    At every step finished rows leave and waiting requests join. A request that needs more rows than are free waits, and
    those behind it wait too, so that wide beams are not starved by narrow ones.
    """

    def __init__(
        self,
        decoder: Decoder[S],
        rules: EndRules,
        start_id: int,
        workers: int,
        max_rows: int,
        metrics: Metrics,
        on_crash: Callable[[Exception], None],
    ) -> None:
        self._engines = [RunningBatch(decoder, rules, start_id, max_rows, metrics, worker) for worker in range(workers)]
        self._threads = [
            threading.Thread(target=self._run, args=(engine,), name=f"engine-{worker}", daemon=True)
            for worker, engine in enumerate(self._engines)
        ]
        metrics.capacity(workers * max_rows, decoder.row_tokens)
        self._metrics = metrics
        self._on_crash = on_crash
        self._waiting: deque[Request] = deque()
        self._stopping = False
        self._crashed = False
        self._work = threading.Condition()
        """Somebody may have something to do: a request came, or it is time to stop."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._work:
            self._stopping = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join()
        self._fail_waiting(Draining())

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def crashed(self) -> bool:
        """An engine failed; nothing is accepted any more."""
        return self._crashed

    def submit(self, request: Request) -> None:
        """Queues a request. Its answer comes through `request.deliver`, on another thread.

        Failed, on this one, after a crash or once the scheduler stops.
        """
        with self._work:
            refusal = self._refusal()
            if refusal is None:
                self._waiting.append(request)
                self._metrics.waiting(len(self._waiting))
                self._work.notify()
        if refusal is not None:
            request.deliver(Failed(refusal))

    def _refusal(self) -> Exception | None:
        """Why nothing is accepted any more."""
        if self._crashed:
            return EngineStopped()
        return Draining() if self._stopping else None

    def _run(self, engine: RunningBatch[S]) -> None:
        """One worker's life."""
        try:
            while self._receive(engine):
                engine.step()
            engine.fail(Draining())
        except Exception as error:
            log.exception("engine failed")
            self._crash(engine, error)

    def _receive(self, engine: RunningBatch[S]) -> bool:
        """Admits this engine's share of what waits. Blocks only if there is nothing else to do. False: stop."""
        requests = self._next(engine)
        if requests:
            engine.admit(requests)
        return not self._stopping

    def _next(self, engine: RunningBatch[S]) -> list[Request]:
        """The next requests that are for this engine. Waits for one if the engine is idle."""
        with self._work:
            while not self._stopping:
                requests = self._take_share(engine)
                if requests or not engine.idle:
                    return requests
                self._work.wait()
        return []

    def _take_share(self, engine: RunningBatch[S]) -> list[Request]:
        """Takes requests from the head of the queue, as many as leave each engine equally many free rows.

        An engine that took all that fits would leave the others idle. But the one with the most free rows takes what
        fits nowhere else.
        """
        free = [other.free_rows for other in self._engines]
        coming = sum(request.rows for request in islice(self._waiting, MAX_JOINING * len(free)))
        even, most, rows = (sum(free) - coming) // len(free), max(free), engine.free_rows
        taken: list[Request] = []
        while self._waiting and len(taken) < MAX_JOINING:
            request = self._waiting[0]
            left = rows - request.rows
            if not request.cancelled:
                if left < 0 or (left < even and rows < most):
                    break
                taken.append(request)
                rows = left
            else:
                self._metrics.cancelled()
            self._waiting.popleft()
            self._metrics.waiting(len(self._waiting))
        return taken

    def _crash(self, engine: RunningBatch[S], error: Exception) -> None:
        """Answers what the engine ran, and what waits. The other workers finish what they run."""
        with self._work:
            first, self._crashed = not self._crashed, True
        engine.fail(error)
        self._fail_waiting(EngineStopped())
        if first:
            self._on_crash(error)

    def _fail_waiting(self, error: Exception) -> None:
        with self._work:
            waiting, self._waiting = self._waiting, deque()
            self._metrics.waiting(0)
        for request in waiting:
            request.deliver(Failed(error))
