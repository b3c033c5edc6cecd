"""The real runner, supervisor, queue, admission, running batches and drain on a clock that nobody waits for.

The decoder copies. Workers take turns in the order of their own times: a step takes what `SlowDecoder` says, calls come
when they do, and what fails does so when it was told to.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from heapq import heappop, heappush
from itertools import count
from typing import Any
from unittest.mock import patch

import engine.runner
import engine.supervision.worker
from engine.errors import Closing, EngineError, Late, OutOfMemory, Quarantined, Stopped
from engine.observer import Unobserved
from engine.queueing.cost import Work
from engine.queueing.queue import FairQueue
from engine.request import Event, Failed, Finished, Tokens, Translate
from engine.runner import Runner
from engine.supervision.policy import UNSUPERVISED, Supervision
from engine.supervision.supervisor import LOOK_S
from engine.supervision.worker import Worker
from models.decoding import Decoding
from server.admission.permits import Admission
from server.errors import EngineStopped, ServerError
from tests.engine.calling import RULES
from tests.simulation.calls import Call
from tests.simulation.draining import Drain
from tests.simulation.invariants import check
from tests.simulation.machine import SPEED, Clock, Crash, Idle, SlowDecoder, Speed, Stuck, Thread, Turns, stuck_turn

NOTICED_S = 15.0
"""In which a hang must be."""
END_S = 1.0
"""How long after its engines failed for good a server is asked to end."""
MOST_EVENTS = 100_000
"""A schedule that has more does not end."""


class World:
    """A server without a network."""

    def __init__(
        self,
        seed: int,
        workers: int = 2,
        rows: int = 16,
        max_waiting: int = 1024,
        speed: Speed = SPEED,
        supervision: Supervision = UNSUPERVISED,
        express_rows: int = 0,
    ) -> None:
        self.chance, self.clock = random.Random(seed), Clock()
        self.decoder = SlowDecoder(self.clock, self.chance, speed)
        self.decoder.hang = self._hang
        self.turns = Turns(self._ready, self._join)
        self.trace: list[str] = []
        """What happened, and when."""
        self.calls: list[Call] = []
        self.expressed = set[Call]()
        """Those that had rows of the express worker."""
        self.began = self.clock.now
        self._rows: Counter[Call] = Counter()
        self._call_of: dict[int, Call] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._wrong: list[str] = []
        """What was told that may not be."""
        self._stuck: list[Thread] = []
        self._timers = set[float]()
        """Of the drain's event loop, that the world knows of."""
        self._turn_of: Stuck | None = None
        self._closed = self._ending = self._looking = False
        with self._patched():
            options = Unobserved(), FairQueue, False, supervision, None, express_rows
            self.runner = Runner(self.decoder, rows, workers, *options)
            self.runner.measure(512, 512)
            self._drain = Drain(self, self.clock, self._shut)
        self.began = self.decoder._began = self.clock.now
        self.admission = Admission(max_waiting, self.runner, self.clock, self.chance.random)

    def arrive(self, call: Call, at: float) -> None:
        """A call will come so long after the start."""
        call.arrived = self.began + at
        self._at(call.arrived, lambda: self._come(call))

    def end(self, at: float, grace_s: float | None) -> None:
        """The server will be asked to end so long after the start, and ends after the grace period. None: at once."""
        if grace_s is None:
            self._at(self.began + at, self._shut)
            return
        self._at(self.began + at, lambda: self._drain.begin([self.admission], grace_s))

    def rows_of(self, call: Call) -> int:
        """That were computed for it."""
        return self._rows[call]

    def run(self) -> None:
        """Until nothing is left to do. Checks what must hold after every event."""
        with self._patched():
            try:
                for worker in self.workers:
                    worker.thread.start()
                for _ in range(MOST_EVENTS):
                    if not self._events:
                        break
                    at, _, event = heappop(self._events)
                    self.clock.now = at
                    event()
                    self._make_turn_of_drain()
                    self._check()
                assert not self._events, "it does not end"
                for thread in self._stuck:
                    self._come_back(thread)
                self._check_end()
            finally:
                self._drain.close()
                for thread in self._stuck:
                    self._come_back(thread)

    @property
    def workers(self) -> list[Worker]:
        """That live."""
        return self.runner._supervisor.workers

    def _patched(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(patch.object(time, "perf_counter", self.clock))
        stack.enter_context(patch.object(time, "monotonic", self.clock))
        stack.enter_context(patch.object(engine.runner, "threading", self.turns))
        stack.enter_context(patch.object(engine.supervision.worker, "threading", self.turns))
        return stack

    def _at(self, at: float, event: Callable[[], None]) -> None:
        heappush(self._events, (at, next(self._order), event))

    def _tell(self, what: str) -> None:
        self.trace.append(f"{self.clock.now - self.began:8.4f} {what}")

    # Calls

    def _come(self, call: Call) -> None:
        self.calls.append(call)
        deadline = None if call.deadline_s is None else call.arrived + call.deadline_s
        work = Work(
            len(call.lengths), sum(call.lengths), max(call.lengths), call.beams, call.most, call.caller, call.bulk
        )
        try:
            with self.admission.permit(work, deadline):
                call.requests = [self._request(call, n, length, deadline) for n, length in enumerate(call.lengths)]
                self._tell(f"call {len(self.calls)} comes")
                for request in call.requests:
                    self.runner.submit(request)
        except ServerError as error:
            call.refusal = error.reason
            self._tell(f"call {len(self.calls)} is refused: {error.reason}")
            return
        patience = min(call.deadline_s or 1e9, 1e9 if call.leaves_after_s is None else call.leaves_after_s)
        if patience < 1e9 and call.waits:
            self._at(call.arrived + patience, lambda: self._leave(call, "leaves"))

    def _leave(self, call: Call, why: str) -> None:
        """Whoever has not got an answer by now goes."""
        if call.waits:
            self._tell(f"call {self.calls.index(call) + 1} {why}")
            call.ended, call.failed = self.clock.now, True
            for request in call.requests:
                request.cancel()

    def _finish(self, call: Call) -> None:
        """All of it is answered. Who reads slowly has read it later, and may leave before."""
        if not call.reads_s:
            call.ended = self.clock.now
            return

        def end() -> None:
            if call.ended is None:
                call.ended = self.clock.now
                self._tell(f"call {self.calls.index(call) + 1} has read all")

        self._at(call.read_until, end)

    def _request(self, call: Call, number: int, length: int, deadline: float | None) -> Translate:
        source = call.source_ids(length)
        streamed: tuple[int, ...] = ()

        def deliver(event: Event) -> None:
            try:
                tell(event)
            except AssertionError as error:  # the engine would take it for a failure of its own
                self._wrong.append(str(error))

        def tell(event: Event) -> None:
            nonlocal streamed
            assert not call.answers[number], f"content {number} is told something after its answer: {event}"
            call.read_until = max(call.read_until, self.clock.now) + call.reads_s
            if isinstance(event, Tokens):
                streamed += event.token_ids
                return
            call.answers[number] += 1
            self.admission.answered()
            if isinstance(event, Finished):
                [best] = event.hypotheses
                expected = (source * call.most if call.endless else source)[: call.most]
                assert best.token_ids == expected, f"an answer is another one's: {best.token_ids} for {source}"
                assert streamed == best.token_ids[: len(streamed)], "tokens were told that are not the answer's"
            if isinstance(event, Failed):
                self._check_failure(call, request, event.error)
                if not call.failed:  # it is answered as a whole or not at all
                    call.failed, call.ended = True, self.clock.now
                    for other in call.requests:
                        other.cancel()
            if len(call.answers) == len(call.lengths) and call.ended is None:
                self._finish(call)
            self._tell(f"call {self.calls.index(call) + 1}.{number} is told {type(event).__name__} {event!s:.70}")

        decoding = Decoding(num_beams=call.beams, max_new_tokens=call.most)
        request = Translate(source, deliver, arrived=self.clock.now, decoding=decoding, rules=RULES, stream=call.stream)
        request.caller, request.bulk, request.deadline = call.caller, call.bulk, deadline
        self._call_of[id(request)] = call
        return request

    # Workers

    def _ready(self, thread: Thread) -> None:
        """It has a turn to make now."""
        self._at(self.clock.now, lambda: self._turn(thread))

    def _turn(self, thread: Thread) -> None:
        """One turn of a worker's thread."""
        if thread.ended or thread.stuck is not None:
            return
        worker = thread.worker
        if not self.decoder.fails_next() or self.decoder.faults[0].kind != "hang":
            self._make_turn(thread, worker)
            return
        turn = Stuck(self.clock.now)
        self._turn_of = turn
        ended = turn.make(lambda: self._make_turn(thread, worker))
        self._turn_of = None
        if not ended:
            self._tell(f"{thread.name} hangs")
            thread.stuck = turn
            self._stuck.append(thread)
            if self.chance.random() < 0.5:
                later = [at for at, _, _ in self._events if at > self.clock.now + 1] or [self.clock.now + 1]
                back = self.chance.choice(later) + self.chance.choice((0.005, 30)) * self.chance.random()
                self._at(back, lambda: self._come_back(thread))
            if not self._looking and self.runner._supervisor._policy.restarts:
                self._looking = True
                self._at(self.clock.now + LOOK_S, self._look)

    def _make_turn(self, thread: Thread, worker: Worker) -> None:
        self.turns.current = thread
        running = list(worker.batch._rows.running)
        first_end = self.clock.now + worker.batch._cost.step_s(1)  # of the step that it is to make, at the earliest
        left = [one for one in running if one.request.cancelled or (one.request.deadline or 1e9) < first_end]
        failed = len(self.decoder.failed)
        try:
            goes_on = worker.go_on()
        except Idle:
            return
        if not worker.leaving and any(one in worker.batch._rows.running for one in left):
            self._wrong.append("rows are computed for somebody who has left, or will have")
        if len(self.decoder.failed) > failed:
            self._tell(f"{thread.name}: {', '.join(self.decoder.failed[failed:])}")
        for one in running:
            if (call := self._call_of.get(id(one.request))) is not None:
                self._rows[call] += one.rows
                if worker.number == self.runner.workers:
                    self.expressed.add(call)
        if goes_on:
            self._ready(thread)
        else:
            thread.ended = True

    def _hang(self) -> None:
        if self._turn_of is None:  # it began before its time: it cannot be left behind
            raise Crash("the engine crashed where it should have hung")
        self._turn_of.hang()

    def _come_back(self, thread: Thread) -> None:
        """A kernel that hung comes back, maybe long after its worker was given up."""
        if thread.stuck is not None:
            now = self.clock.now
            stuck, thread.stuck = thread.stuck, None
            self._tell(f"{thread.name} comes back")
            stuck.come_back()
            self.clock.now = max(now, self.clock.now)

    def _look(self) -> None:
        """The watching thread does."""
        supervisor = self.runner._supervisor
        before = list(self.workers)
        if not supervisor._ended.is_set():
            supervisor.look(LOOK_S)
        for worker in before:
            turn = stuck_turn(worker)
            if turn is not None and worker in self.workers and not supervisor._ended.is_set():
                seconds = self.clock.now - turn.since
                patience_s = supervisor._policy.patience_s(worker.expected_s, not supervisor._watchdog._begun)
                most = max(NOTICED_S, patience_s + 3 * LOOK_S)
                assert seconds < most, f"a hang was not noticed for {seconds:.1f} s"
        self._looking = any(stuck_turn(worker) is not None for worker in self.workers)
        if self._looking and not supervisor._ended.is_set():
            self._at(self.clock.now + LOOK_S, self._look)

    # Callers, to whoever drains

    def waiting(self) -> int:
        return sum(call.waits for call in self.calls)

    def leave(self, why: str) -> None:
        for call in self.calls:
            self._leave(call, why)

    def _make_turn_of_drain(self) -> None:
        """Of its event loop, which goes on when somebody has an answer, and at its next timer."""
        due = self._drain.turn()
        if due is not None and due not in self._timers:
            self._timers.add(due)
            self._at(max(due, self.clock.now), lambda: None)

    def _shut(self) -> None:
        """The engine ends, whoever waits."""
        if self._closed:
            return
        self._closed = True
        self._tell("the engine is closed")
        self.runner.close()

    def _join(self, thread: Thread, timeout_s: float) -> None:
        while not (thread.ended or thread.stuck is not None):
            self._turn(thread)

    # What must hold

    def _check(self) -> None:
        """Rows are neither lost nor made."""
        assert not self._wrong, self._wrong[0]
        if self.runner.failure.done() and not self._ending:  # the process ends then
            self._ending = True
            self.admission.close(EngineStopped)
            self._at(self.clock.now + END_S, lambda: self._drain.begin([self.admission], 0.0))
        waiting = (request for call in self.calls if call.waits for request in call.unanswered)
        check(self.runner, self.admission, waiting)

    def _check_failure(self, call: Call, request: Translate, error: Exception) -> None:
        """Nobody is told of a failure that there was no reason for."""
        failed = self.decoder.failed
        if isinstance(error, Late):
            assert request.deadline is not None
            left = request.deadline - self.clock.now
            assert abs(error.left - left) < 1e-6, f"{left} s are left, and it is told {error.left}"
            assert error.seconds > left - 1e-6, f"it is late with {left} s left, of which it needs {error.seconds}"
        reasons: dict[type[Exception], Any] = {
            Late: call.deadline_s is not None,
            Quarantined: call.poison or len(failed) > 1,
            OutOfMemory: "memory" in failed,
            Closing: self._closed,
            Stopped: self.runner.failure.done(),
        }
        over = self.runner._supervisor._ended.is_set()
        fine = reasons.get(type(error), not isinstance(error, EngineError) and failed and (request.told or over))
        if isinstance(error, EngineError) and type(error).__name__ == "Hung":
            fine = "hang" in failed and (request.told or over)
        assert fine, f"a request failed without a reason: {error!r}"

    def _check_end(self) -> None:
        """Everybody was answered once, and nothing is left."""
        unwatched = self.runner._supervisor._policy.restarts == 0 and "hang" in self.decoder.failed
        if unwatched and not self._closed:  # nobody watches: what hangs does
            return
        assert self.runner.waiting == 0, "requests wait, and nobody will take them"
        if not self.decoder.failed and not self._closed:
            assert all(one.batch.free_rows == one.batch.rows for one in self.workers), "rows are not given back"
        for number, call in enumerate(self.calls, 1):
            assert not call.waits, f"call {number} was never answered"
            if not (call.refusal or call.failed):
                assert len(call.answers) == len(call.lengths), f"call {number} was not answered as a whole"
