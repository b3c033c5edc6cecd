"""The loop: receive, admit, step. One queue, and a thread with a running batch of its own for each worker."""

import asyncio
import logging
import threading
import time
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from engine.batch.running_batch import RunningBatch
from engine.decoder import Decoder
from engine.devices.session import Device
from engine.errors import Closing, DoesNotFit, Stopped
from engine.observer import Observer
from engine.queue import ArrivalQueue, Queue
from engine.request import Failed, Request

log = logging.getLogger(__name__)

CLOSE_S = 2.0
"""How long workers may take to end the step that they are in. One whose kernel hangs is left behind then."""


class Runner:
    """Runs requests on worker threads. At every step finished rows leave, and waiting requests join.

    Every request that is submitted gets an answer, whatever happens, unless it is cancelled. Use it as a context
    manager, on an event loop as an asynchronous one.
    """

    def __init__(
        self,
        decoder: Decoder[Any],
        rows: int,
        workers: int,
        observer: Observer,
        queue: Queue | None = None,
        owns_decoder: bool = False,
    ) -> None:
        """`rows`: of each worker's batch. `queue`: first come, first served, if it is left out.

        owns_decoder: the decoder is closed with the runner
        """
        self.failure: Future[Exception] = Future()
        """Why an engine failed, once one has: nothing is accepted any more."""
        self.workers, self.rows = workers, rows
        self._decoder, self._owns_decoder, self._observer = decoder, owns_decoder, observer
        self._queue: Queue = ArrivalQueue() if queue is None else queue
        self._batches = [RunningBatch(decoder, rows, observer, worker) for worker in range(workers)]
        self._threads = [
            threading.Thread(target=self._run, args=(worker,), name=f"engine-{worker}", daemon=True)
            for worker in range(workers)
        ]
        self._closing = False
        self._work = threading.Condition()
        """Somebody may have something to do: a request came, or it is time to end. Its lock is the queue's."""
        observer.capacity(workers * rows, decoder.row_tokens)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def device(self) -> Device:
        """What it runs on, as it was loaded."""
        return self._decoder.device

    @property
    def waiting(self) -> int:
        """Requests in the queue that somebody waits for."""
        return len(self._queue)

    def submit(self, request: Request) -> None:
        """Queues a request. Its answer comes through `request.deliver`, on another thread.

        On this one it is Failed: with DoesNotFit, with Stopped after a failure, with Closing once the runner closes.
        """
        request.withdraw = self._withdraw
        with self._work:
            refusal = self._refusal(request)
            if refusal is None and request.cancelled:  # before there was anything to take it out of
                self._observer.cancelled()
            elif refusal is None:
                self._queue.put(request)
                self._observer.waiting(len(self._queue))
                self._work.notify()
        if refusal is not None:
            request.deliver(Failed(refusal))

    async def aclose(self, timeout_s: float = CLOSE_S) -> None:
        """As `close`, without blocking the event loop."""
        self._begin_closing()
        await asyncio.to_thread(self.close, timeout_s)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Ends all workers after the step that they are in, and answers what is not answered with Closing.

        Ends in that time even where a kernel does not: its thread is then left to itself, and its device's memory too.
        """
        self._begin_closing()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        self._fail_waiting(Closing())
        hung = [thread.name for thread in self._threads if thread.is_alive()]
        for batch in self._batches:
            batch.fail(Closing())
        if hung:
            log.error("%s did not end within %g s and will be left behind", ", ".join(hung), timeout_s)
        elif self._owns_decoder:
            self._decoder.close()

    def _run(self, worker: int) -> None:
        """One worker's life. What a step says is delivered while the next is computed."""
        batch = self._batches[worker]
        try:
            while self._receive(worker):
                batch.step()
            batch.fail(Closing())
        except Exception as error:
            log.exception("engine failed")
            self._fail(batch, error)

    def _receive(self, worker: int) -> bool:
        """Admits this worker's share of what waits. Blocks only if there is nothing else to do. False: end."""
        batch = self._batches[worker]
        if not (batch.idle or len(self._queue)):  # most steps: no worker waits for another, or for a caller
            return not self._closing
        with self._work:
            while not (requests := self._take_share(worker)) and batch.idle and not self._closing:
                self._work.wait()
        if self._closing:
            return False
        if requests:
            batch.admit(requests)
        return True

    def _take_share(self, worker: int) -> list[Request]:
        """Takes requests out of the queue. From here on the worker's batch answers them."""
        if not len(self._queue) or self._closing:
            return []
        free_rows = [batch.free_rows for batch in self._batches]
        requests = self._queue.share(worker, free_rows, time.perf_counter())
        if requests:
            self._batches[worker].hold(requests)
            self._observer.waiting(len(self._queue))
        return requests

    def _withdraw(self, request: Request) -> None:
        """Takes a cancelled request out of the queue, if it is still there."""
        with self._work:
            if self._queue.discard(request):
                self._observer.cancelled()
                self._observer.waiting(len(self._queue))
                self._work.notify()  # those behind it may fit now

    def _refusal(self, request: Request) -> Exception | None:
        """Why a request is not accepted."""
        if self._closing:
            return Closing()
        if self.failure.done():
            return Stopped()
        if request.rows > self.rows:
            return DoesNotFit("rows", request.rows, self.rows)
        return None

    def _begin_closing(self) -> None:
        with self._work:
            self._closing = True
            self._work.notify_all()

    def _fail(self, batch: RunningBatch[Any], error: Exception) -> None:
        """Answers what the batch ran, and what waits. The other workers finish what they run."""
        with suppress(InvalidStateError):  # another one failed before
            self.failure.set_result(error)
        batch.fail(error)
        self._fail_waiting(Stopped())

    def _fail_waiting(self, error: Exception) -> None:
        with self._work:
            requests: list[Request] = self._queue.clear()
            self._observer.waiting(0)
        for request in requests:
            try:
                request.deliver(Failed(error))
            except Exception:  # whoever listens is gone; the others are answered all the same
                log.exception("a request that waited could not be told what became of it")
