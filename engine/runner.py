"""Requests in, answers out: one queue, of which every worker takes its share (engine/supervision/worker.py)."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from engine.batch.measuring import MEASURED_STEPS
from engine.batch.running_batch import RunningBatch
from engine.decoder import Decoder, GivenTargets
from engine.devices.session import Device
from engine.errors import Closing, DoesNotFit, Late, NotOffered, Stopped
from engine.observer import Observer
from engine.processors.stage import looks_at_scores
from engine.queueing.cost import CostModel, Work
from engine.queueing.express import EXPRESS_TOKENS, places
from engine.queueing.queue import BUSY_TOKENS, DEVICE_JOINING, JOINING_TOKENS, MAX_JOINING, FairQueue, Queue
from engine.request import Failed, Request, Score, Translate, tell
from engine.supervision.cores import Cores
from engine.supervision.policy import UNSUPERVISED, Supervision
from engine.supervision.supervisor import Supervisor
from engine.supervision.worker import Worker
from kernels.steps import Arrivals
from models.decoding import Decoding

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
        queue: Callable[[CostModel], Queue] = FairQueue,
        owns_decoder: bool = False,
        supervision: Supervision = UNSUPERVISED,
        cores: Cores | None = None,
        express_rows: int = 0,
    ) -> None:
        """`rows`: of each worker's batch. `queue`: makes one that knows what requests cost.

        owns_decoder: the decoder is closed with the runner. supervision: whether workers that fail begin anew.
        cores: those that other runners use too. express_rows: of a worker more, for those whom another caller is in the
        way of: see `engine.queueing.express`. 0: there is none
        """
        self.failure: Future[Exception] = Future()
        """Why an engine failed, once one has that is not to begin anew: nothing is accepted any more."""
        self.workers, self.rows = workers, rows
        self.memory_bytes = 0
        """That the model may come to take, as far as whoever loaded it knows."""
        self._decoder, self._owns_decoder, self._observer = decoder, owns_decoder, observer
        on_host = decoder.device.kind == "cpu"
        self._joining, self._busy_tokens = (MAX_JOINING, BUSY_TOKENS) if on_host else (DEVICE_JOINING, JOINING_TOKENS)
        self._cost = CostModel(workers, rows)
        self._queue = queue(self._cost)
        self._closing = False
        lock = threading.RLock()
        self._work = threading.Condition(lock)
        """Somebody may have something to do: a request came, or it is time to end. Its lock is the queue's."""
        self._arrivals = Arrivals()
        """Requests that came. Noted with that lock."""
        self._express_rows, self._express_work = express_rows, threading.Condition(lock)
        """The express worker may have something to do. With the same lock."""
        self._supervisor = Supervisor(
            workers + bool(express_rows),
            self._open_batch,
            self._receive,
            self._give_up,
            self._refuse_waiting,
            supervision,
            observer,
            self._work,
            cores or Cores(),
            bool(express_rows),
        )
        observer.capacity(workers * rows + express_rows, decoder.row_tokens)

    def __enter__(self) -> Self:
        self.start()
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

    def start(self) -> None:
        """Starts the workers. Whoever does closes it, too."""
        self._supervisor.start()

    @property
    def device(self) -> Device:
        """What it runs on, as it was loaded."""
        return self._decoder.device

    @property
    def threads(self) -> list[int]:
        """Of its workers that have begun, but for the express one: by their numbers, as the system calls them."""
        threads = (worker.thread.native_id for worker in self._supervisor.workers[: self.workers])
        return [thread for thread in threads if thread is not None]

    @property
    def expresses(self) -> bool:
        """Somebody has rows of the express worker: another caller is in the way at the others."""
        return any(worker.used_rows for worker in self._supervisor.workers[self.workers :])

    @property
    def waiting(self) -> int:
        """Requests in the queue that somebody waits for."""
        return len(self._queue)

    def waiting_of(self, caller: str) -> int:
        """Those of a caller."""
        with self._work:
            return self._queue.length_of(caller)

    @property
    def idle(self) -> bool:
        """Nothing runs, and nothing waits."""
        return not len(self._queue) and not any(worker.used_rows for worker in self._supervisor.workers)

    def measure(self, source_tokens: int, target_tokens: int) -> None:
        """Decodes a little, to know what steps cost before the first request. Not once it runs.

        What rows have no room for is not measured: then the first steps tell.
        """
        if target_tokens >= 2 * MEASURED_STEPS:
            self._cost.measured(self._supervisor.workers[0].batch.measure(self.rows, source_tokens))

    def costs_as(self, other: "Runner") -> None:
        """Takes steps for as expensive as another one's were measured to be, instead of measuring them."""
        self._cost.measured(other._cost.workers[0].measured)

    def finish_s(self, work: Work, reserved: float = 0.0) -> float:
        """In how many seconds a call would be answered that came now. `reserved`: cost of calls that come before it.

        Every other model that computes just now takes as much time as this one.
        """
        wanted = work.contents * work.beams
        with self._work:
            waiting = len(self._queue)
            express = self._express_for(work, work.contents * places(work.beams))
        if express is not None:
            return self._cost.express_s(work, express.used_rows + wanted) * (1 + express.seat.rivals)
        workers = self._supervisor.workers[: self.workers]
        rivals = sum(worker.seat.rivals for worker in workers) / self.workers
        used, free = sum(worker.used_rows for worker in workers), sum(worker.free_rows for worker in workers)
        rows = (used + min(free, waiting + wanted)) / self.workers
        seconds = self._cost.service_s(work, rows)
        if waiting or wanted > free:
            ahead = self._cost.of_work(work) + reserved
            if waiting:
                with self._work:
                    ahead = self._queue.ahead(work.caller, work.bulk, ahead)
            seconds += ahead / self.workers * self._cost.slowdown(rows)
        return seconds * (1 + rivals)

    def cost_of(self, work: Work) -> float:
        """Seconds of a worker that a call will take."""
        return self._cost.of_work(work)

    def spent_s(self, source_tokens: int, rows: int) -> float:
        """Seconds of a worker that such a source takes, with so many rows of steps."""
        return self._cost.spent(source_tokens, rows)

    def weigh(self, weight: float) -> None:
        """Lets other models go first at the cores they share: by `cores.BEHIND`, or with 1 no longer."""
        self._supervisor.weigh(weight)

    def submit(self, request: Request) -> None:
        """Queues a request. Its answer comes through `request.deliver`, on another thread.

        On this one it is Failed: with DoesNotFit, with Stopped after a failure, with Quarantined, with
        Closing once the runner closes.
        """
        request.withdraw = self._withdraw
        with self._work:
            refusal = self._refusal(request)
            if refusal is None and request.cancelled:  # before there was anything to take it out of
                self._observer.cancelled()
            elif refusal is None:
                self._queue.put(request)
                self._arrivals.note()
                self._observer.waiting(len(self._queue))
                self._work.notify(self.workers if self._queue.choosy else 1)
                if self._queue.may_go_express(request):
                    self._express_work.notify()
        if refusal is not None:
            request.deliver(Failed(refusal))

    async def aclose(self, timeout_s: float = CLOSE_S) -> None:
        """As `close`, without blocking the event loop. Several may be closed at once, in the time of one."""
        self._begin_closing()
        deadline = time.monotonic() + timeout_s
        try:
            await asyncio.to_thread(self._end, deadline)
        except RuntimeError:  # the interpreter ends, and begins no thread: there is nobody to block any more
            self._end(deadline)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Ends all workers after the step that they are in, and answers what is not answered with Closing.

        Ends in that time even where a kernel does not: its thread is then left to itself, and its device's memory too.
        """
        self._begin_closing()
        self._end(time.monotonic() + timeout_s)

    def _end(self, deadline: float) -> None:
        workers = self._supervisor.workers
        for worker in workers:
            if worker.thread.ident is not None:
                worker.thread.join(max(0.0, deadline - time.monotonic()))
        self._fail_waiting(Closing())
        for worker in workers:
            worker.fail(Closing())
        hung = [worker.thread.name for worker in workers if worker.thread.is_alive()]
        if hung:
            log.error("%s did not end in time and will be left behind", ", ".join(hung))
            return
        self._supervisor.forget()
        if self._owns_decoder:
            self._decoder.close()

    def _open_batch(self, worker: int) -> RunningBatch[Any]:
        """Of a worker that begins, or begins anew. Its rows are free."""
        self._queue.restarted(worker)
        cost, ended = self._cost.of_worker(worker), partial(self._ended, worker)
        called = partial(bool, self._queue)
        express = worker == self.workers
        rows = self._express_rows if express else self.rows
        # A device makes one run after the other anyway, and what the express worker encodes is short.
        beside = self._decoder.device.kind == "cpu" and not express
        return RunningBatch(self._decoder, rows, self._observer, worker, cost, ended, called, beside, self._arrivals)

    def _receive(self, worker: Worker) -> Sequence[Request] | None:
        """This worker's share of what waits. Blocks only if there is nothing else to do. None: end."""
        batch = worker.batch
        if not (batch.idle or len(self._queue)):  # most steps: no worker waits for another, or for a caller
            return None if worker.leaving else ()
        late = dict[Request, float]()
        with self._work:
            while not (requests := self._take_share(worker, late)) and batch.idle and not (worker.leaving or late):
                (self._express_work if worker.number == self.workers else self._work).wait()
        for request, needed_s in late.items():
            assert request.deadline is not None
            tell(request, Late(needed_s, request.deadline - time.perf_counter()))
        return None if worker.leaving else requests

    def _take_share(self, worker: Worker, late: dict[Request, float]) -> list[Request]:
        """Takes requests out of the queue. From here on the worker's batch answers them, and the caller the late."""
        if not len(self._queue) or worker.leaving:
            return []
        now = time.perf_counter()
        free_rows = [other.free_rows for other in self._supervisor.workers]
        tokens = JOINING_TOKENS if worker.batch.idle else self._busy_tokens if worker.batch.may_encode else 0
        share = self._queue.share(worker.number, free_rows, worker.used_rows, now, tokens, self._joining)
        requests = share.joining
        late.update(share.late)
        if requests:
            worker.batch.hold(requests)
        if share.express:
            self._express_work.notify()
        if requests or late:
            self._observer.waiting(len(self._queue))
        return requests

    def _express_for(self, work: Work, rows: int) -> Worker | None:
        """The express worker, if work that wants so many rows would go there."""
        workers = self._supervisor.workers
        if not (self._express_rows and rows <= workers[-1].free_rows and work.longest + work.given <= EXPRESS_TOKENS):
            return None
        free_rows = [worker.free_rows for worker in workers]
        return workers[-1] if self._queue.hindered(work.caller, free_rows, time.perf_counter()) else None

    def _ended(self, worker: int, request: Request, computed: int) -> None:
        """A request of a worker's batch gave its rows back."""
        cost = self._cost.spent(len(request.source_ids), computed)
        with self._work:
            self._queue.ended(request, worker, cost)

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
        if isinstance(request, Translate) and not self._decoder.gives_logits and looks_at_scores(request.decoding):
            return NotOffered("the scores of all tokens")
        given_targets = self._decoder.given_targets
        if isinstance(request, Score) and not given_targets.scores:
            return NotOffered("the score of a given target")
        if isinstance(request, Translate) and (lacking := _lacking(request.decoding, given_targets)):
            return NotOffered(lacking)
        return self._supervisor.refusal(request)

    def _begin_closing(self) -> None:
        with self._work:
            self._closing = True
            self._supervisor.leave()
            self._work.notify_all()
            self._express_work.notify_all()

    def _give_up(self, error: Exception) -> None:
        """Answers what waits. The other workers finish what they run."""
        with suppress(InvalidStateError):  # another one failed before
            self.failure.set_result(error)
        self._fail_waiting(Stopped())

    def _refuse_waiting(self) -> None:
        """Answers what waits and is no longer accepted."""
        with self._work:
            for request in self._queue.requests():
                refusal = self._supervisor.refusal(request)
                if refusal is not None and self._queue.discard(request):
                    tell(request, refusal)
            self._observer.waiting(len(self._queue))

    def _fail_waiting(self, error: Exception) -> None:
        with self._work:
            requests: list[Request] = self._queue.clear()
            self._observer.waiting(0)
        for request in requests:
            tell(request, error)


def _lacking(decoding: Decoding, given: GivenTargets) -> str:
    """What is to be told of hypotheses, and is not. Empty: nothing."""
    if decoding.with_alignment and not given.aligns:
        return "an alignment"
    if decoding.with_attention and not given.attends:
        return "attention"
    return "a coverage of the source" if decoding.coverage_penalty and not given.covers else ""
