"""What becomes of a worker that fails or hangs, and of the requests that it had on board.

They are tried again by its next life, alone, so that the one that makes it fail twice is known. What a worker is short
of memory for is tried again in halves. docs/decisions/0016-engines-are-supervised.md has the reasons.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, NoReturn

from engine.batch.running_batch import RunningBatch
from engine.devices.session import is_out_of_memory
from engine.errors import Hung, OutOfMemory, Quarantined
from engine.observer import Observer, RestartCause
from engine.request import Probe, Request, nobody, tell
from engine.supervision.cores import Cores
from engine.supervision.policy import Supervision
from engine.supervision.quarantine import Quarantine
from engine.supervision.watchdog import Watchdog
from engine.supervision.worker import Suspects, Worker

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often workers are looked after."""

OpenBatch = Callable[[int], RunningBatch[Any]]
Receive = Callable[[Worker], Sequence[Request] | None]


class Supervisor:
    """Keeps as many workers alive as there are to be."""

    def __init__(
        self,
        workers: int,
        open_batch: OpenBatch,
        receive: Receive,
        give_up: Callable[[Exception], None],
        convicted: Callable[[], None],
        policy: Supervision,
        observer: Observer,
        lock: threading.Condition,
        cores: Cores,
        express: bool = False,
    ) -> None:
        """`open_batch`: of the worker of this number. `give_up` is told when there are to be no more lives.

        convicted: is told when one more request is refused; others like it may wait
        lock: what changes the workers holds it. cores: where they make their turns. express: the last worker is nicer
        than nobody, so that the system gives it a core at once
        """
        self._open_batch, self._receive, self._give_up = open_batch, receive, give_up
        self._convicted = convicted
        self._policy, self._observer, self._lock = policy, observer, lock
        self._cores, self._weight = cores, 1.0
        self._express = workers - 1 if express else None
        """Number of that worker."""
        self._quarantine, self._watchdog = Quarantine(), Watchdog(policy)
        self._restarts: deque[float] = deque()
        """When the last ones were."""
        self._ended = threading.Event()
        self.workers = [self._worker(number) for number in range(workers)]

    def start(self) -> None:
        """Starts all workers."""
        for worker in self.workers:
            worker.thread.start()
        if self._policy.watched:
            threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def leave(self) -> None:
        """Workers end after the turn that they are in, and none is followed by another."""
        self._ended.set()
        for worker in self.workers:
            worker.leave()

    def forget(self) -> None:
        """All have ended: their memory is free when the runner is, and not when the interpreter looks for cycles."""
        self.workers, self._watchdog = [], Watchdog(self._policy)
        self._open_batch, self._receive, self._give_up = _ended, lambda worker: None, lambda error: None
        self._convicted = lambda: None

    def weigh(self, weight: float) -> None:
        """What its workers take of the cores counts for so many times as much. See `engine.supervision.cores`."""
        with self._lock:
            self._weight = weight
            for worker in self.workers:
                worker.seat.weight = weight

    def refusal(self, request: Request) -> Exception | None:
        """Why a request is not accepted."""
        if request not in self._quarantine:
            return None
        self._observer.quarantined()
        return Quarantined()

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._ended.wait(LOOK_S):
            now = time.monotonic()
            # No more than that: while the process was stopped nobody could make a step.
            elapsed_s, looked = min(now - looked, 2 * LOOK_S), now
            self.look(elapsed_s)

    def look(self, elapsed_s: float) -> None:
        """Begins those anew that hang. `elapsed_s`: since it was called before."""
        for worker, seconds in self._watchdog.hung(self.workers, elapsed_s):
            self._failed(worker, Hung(seconds))

    def _failed(self, worker: Worker, error: Exception) -> None:
        """Ends a life and begins the next, on the thread that has failed or on the watching one."""
        with self._lock:
            if not any(one is worker for one in self.workers):  # left behind before it failed
                return
            hung = isinstance(error, Hung)
            log.error("engine %d failed", worker.number, exc_info=None if hung else error)
            if hung:
                log.error("%s; its thread is left behind", error)
            memory = is_out_of_memory(error)
            # Taken away first: a thread that is left behind answers what its worker has, should it come back.
            waiting, worker.suspects = worker.suspects, Suspects()
            worker.leave()
            worker.seat.give_up()
            requests = worker.batch.release(delivering=not hung)
            halving = memory and len(requests) > 1
            if not self._may_restart(counts=not halving):
                self._end(error, (*requests, *waiting.requests))
                return
            self._observer.restarted(RestartCause.of(hung, memory))
            self._begin(worker, self._judge(worker.trying, requests, waiting, error, memory))

    def _begin(self, former: Worker, suspects: Suspects) -> None:
        """The next life, with fresh buffers: a thread that hangs may still write into the others."""
        try:
            worker = self._worker(former.number, suspects)
            worker.longest_s = former.longest_s
            self.workers[former.number] = worker
            worker.thread.start()
        except Exception as error:
            log.exception("engine %d does not start again", former.number)
            self._end(error, suspects.requests)

    def _worker(self, number: int, suspects: Suspects | None = None) -> Worker:
        """A new life. Its thread is not started."""
        batch, seat = self._open_batch(number), self._cores.seat(number)
        seat.weight = self._weight
        nice = 0 if number == self._express else self._policy.nice
        return Worker(number, batch, seat, self._receive, self._failed, suspects, nice)

    def _end(self, error: Exception, requests: Iterable[Request]) -> None:
        """No worker that fails is followed by another any more."""
        self._ended.set()
        for request in requests:
            tell(request, error)
        self._give_up(error)

    def _judge(
        self, trying: bool, requests: Sequence[Request], waiting: Suspects, error: Exception, memory: bool
    ) -> Suspects:
        """Answers those of these requests that cannot be tried again. The others, and those not yet tried, are left."""
        if trying and len(requests) == 1:
            self._convict(requests[0], memory)
            return Suspects(deque(self._accepted(waiting.requests)), waiting.together)
        again = [one for request in requests if (one := suspect(request, error, memory)) is not None]
        again = self._accepted(again)
        self._observer.retried(len(again))
        together = max(1, len(requests) // 2) if memory else 1
        return Suspects(deque([*again, *waiting.requests]), together)

    def _accepted(self, requests: Iterable[Request]) -> list[Request]:
        """Answers those that are like one that is refused. The others are left."""
        left = list[Request]()
        for request in requests:
            refusal = self.refusal(request)
            if refusal is None:
                left.append(request)
            else:
                tell(request, refusal)
        return left

    def _convict(self, request: Request, memory: bool) -> None:
        """It was alone when the engine failed again."""
        if memory:
            tell(request, OutOfMemory(len(request.source_ids)))
            return
        log.error(
            "a request of %d source tokens is refused from now on: the engine failed twice with it, the second "
            "time alone; its hash is %s",
            len(request.source_ids),
            self._quarantine.add(request),
        )
        self._observer.quarantined()
        tell(request, Quarantined())
        self._convicted()

    def _may_restart(self, counts: bool) -> bool:
        now = time.monotonic()
        while self._restarts and now - self._restarts[0] > self._policy.within_s:
            self._restarts.popleft()
        if self._ended.is_set() or len(self._restarts) >= self._policy.restarts:
            return False
        if counts:
            self._restarts.append(now)
        return True


def _ended(worker: int) -> NoReturn:
    raise AssertionError(f"worker {worker} is to begin, and all have ended")


def suspect(request: Request, error: Exception, memory: bool) -> Request | None:
    """What is tried again for a request. None: nothing.

    Whoever was told tokens is told of the failure, as tokens cannot be taken back; its request is tried without it,
    because it may be the cause.
    """
    if not request.told and not isinstance(request, Probe):
        return request
    tell(request, error)
    if memory or isinstance(request, Probe):
        return None
    # A copy, not made anew: a prefix would be put before the target once more, and the hash be another's.
    tried = copy(request)
    tried.deliver, tried.told, tried.cancelled = nobody, False, False  # who was told has left by now, maybe
    return tried
