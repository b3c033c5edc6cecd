"""The real runner, queue, admission and running batches on a clock that nobody waits for, over a decoder that copies.

Workers take turns in the order of their own times: a step takes what `SlowDecoder` says, and calls come when they do.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from unittest.mock import patch

from engine.cost import Work
from engine.decoder import Ask, Found, TokenIds
from engine.observer import Unobserved
from engine.request import Event, Failed, Finished, Tokens, Translate
from engine.runner import Runner
from models.decoding import Decoding
from server.admission.permits import Admission
from server.errors import ServerError
from tests.engine.calling import END, RULES
from tests.fakes import CopyCache, CopyDecoder, CopySource


@dataclass(frozen=True)
class Speed:
    """Of a simulated engine, in seconds."""

    step: float = 0.002
    row: float = 0.0003
    """Of a step, for each of its rows."""
    token: float = 0.0001
    """Of an encoder run."""


@dataclass
class Clock:
    """Seconds that somebody sets."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class SlowDecoder(CopyDecoder):
    """Takes its time, by the clock, and not always the same."""

    def __init__(self, clock: Clock, chance: random.Random, speed: Speed) -> None:
        super().__init__()
        self.clock, self.speed, self._chance = clock, speed, chance

    def take(self, seconds: float) -> None:
        """Some time passes."""
        self.clock.now += seconds * self._chance.uniform(0.7, 1.3)

    def encode(self, sources: Sequence[Sequence[int]]) -> list[CopySource]:
        self.take(self.speed.token * sum(map(len, sources)))
        return super().encode(sources)

    def open_cache(self, rows: int) -> "SlowCache":
        return SlowCache(self, rows)


class SlowCache(CopyCache):
    """Of a slow decoder."""

    def __init__(self, decoder: SlowDecoder, capacity: int) -> None:
        super().__init__(decoder, capacity)
        self._slow = decoder

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        self._slow.take(self._slow.speed.step + self._slow.speed.row * self.live)
        super().begin_step(token_ids, ask)

    def end_step(self) -> Found:
        return super().end_step()


@dataclass(eq=False)
class Call:
    """One call, and what became of it."""

    lengths: Sequence[int]
    beams: int = 1
    most: int = 512
    endless: bool = False
    caller: str = ""
    bulk: bool = False
    deadline_s: float | None = None
    leaves_after_s: float | None = None
    arrived: float = 0.0
    ended: float | None = None
    refusal: str = ""
    answers: Counter[int] = field(default_factory=Counter)
    """How often each content was answered."""
    requests: list[Translate] = field(default_factory=list)
    failed: bool = False

    @property
    def in_time(self) -> bool:
        """Answered as a whole, while somebody waited."""
        return self.ended is not None and not self.failed and self.ended - self.arrived <= (self.deadline_s or 1e9)

    @property
    def waits(self) -> bool:
        """It was let in, and not all of it is answered."""
        return not self.refusal and self.ended is None


class World:
    """A server without a network."""

    def __init__(
        self, seed: int, workers: int = 2, rows: int = 16, max_waiting: int = 1024, speed: Speed = Speed()
    ) -> None:
        self.chance, self.clock = random.Random(seed), Clock()
        self.decoder = SlowDecoder(self.clock, self.chance, speed)
        self.runner = Runner(self.decoder, rows, workers, Unobserved())
        with patch.object(time, "perf_counter", self.clock):
            self.runner.measure(512, 512)
        self.admission = Admission(max_waiting, self.runner, self.clock, self.chance.random)
        self.calls: list[Call] = []
        self._rows: Counter[Call] = Counter()
        self._call_of: dict[Translate, Call] = {}
        self._events: list[tuple[float, int, Call | int]] = []
        self._order = count()

    def arrive(self, call: Call, at: float) -> None:
        """A call will come so long after the start."""
        call.arrived = self.clock.now + at
        heappush(self._events, (call.arrived, next(self._order), call))

    def rows_of(self, call: Call) -> int:
        """That were computed for it."""
        return self._rows[call]

    def run(self) -> None:
        """Until nothing is left to do. Checks what must hold after every event."""
        with patch.object(time, "perf_counter", self.clock):
            for worker in self.runner._supervisor.workers:
                heappush(self._events, (self.clock.now, next(self._order), worker.number))
            idle = set[int]()
            while self._events:
                at, _, what = heappop(self._events)
                self.clock.now = at
                if isinstance(what, Call):
                    self._come_or_leave(what)
                    for number in idle:
                        heappush(self._events, (at, next(self._order), number))
                    idle.clear()
                elif self._turn(what):
                    heappush(self._events, (self.clock.now, next(self._order), what))
                else:
                    idle.add(what)
                self._check()
        self._check_end()

    def _come_or_leave(self, call: Call) -> None:
        if call in self.calls:
            self._leave(call)
            return
        self.calls.append(call)
        deadline = None if call.deadline_s is None else call.arrived + call.deadline_s
        work = Work(
            len(call.lengths), sum(call.lengths), max(call.lengths), call.beams, call.most, call.caller, call.bulk
        )
        try:
            with self.admission.permit(work, deadline):
                for number, length in enumerate(call.lengths):
                    call.requests.append(self._request(call, number, length, deadline))
                    self._call_of[call.requests[-1]] = call
                    self.runner.submit(call.requests[-1])
        except ServerError as error:
            call.refusal = error.reason
            return
        patience = min(call.deadline_s or 1e9, call.leaves_after_s or 1e9)
        if patience < 1e9:
            heappush(self._events, (call.arrived + patience, next(self._order), call))

    def _leave(self, call: Call) -> None:
        """Whoever has not got an answer by now goes."""
        if call.waits:
            call.ended, call.failed = self.clock.now, True
            for request in call.requests:
                request.cancel()

    def _request(self, call: Call, number: int, length: int, deadline: float | None) -> Translate:
        source = (7,) * length if call.endless else (*(5 + i % 9 for i in range(length - 1)), END)

        def deliver(event: Event) -> None:
            if isinstance(event, Tokens):
                return
            call.answers[number] += 1
            self.admission.answered()
            if isinstance(event, Finished):
                [best] = event.hypotheses
                assert call.endless or best.token_ids == source[: call.most], "an answer is another one's"
            if isinstance(event, Failed) and not call.failed:  # it is answered as a whole or not at all
                call.failed, call.ended = True, self.clock.now
                for other in call.requests:
                    other.cancel()
            if len(call.answers) == len(call.lengths) and call.ended is None:
                call.ended = self.clock.now

        decoding = Decoding(num_beams=call.beams, max_new_tokens=call.most)
        request = Translate(source, deliver, arrived=self.clock.now, decoding=decoding, rules=RULES)
        request.caller, request.bulk, request.deadline = call.caller, call.bulk, deadline
        return request

    def _turn(self, number: int) -> bool:
        """One turn of a worker. False: it has nothing to do until something comes."""
        worker = self.runner._supervisor.workers[number]
        late: list[Translate] = []
        requests = self.runner._take_share(worker, late)  # type: ignore[arg-type]
        for request in late:
            request.deliver(Failed(self.runner._late(request)))
        if requests:
            worker.batch.admit(requests)
        if worker.batch.idle:
            worker.batch.deliver()
            return bool(requests or late)
        worker.batch.step()
        for running in worker.batch._rows.running:
            self._rows[self._call_of[running.request]] += running.rows
        return True

    def _check(self) -> None:
        """Rows are neither lost nor made."""
        for worker in self.runner._supervisor.workers:
            held = sum(request.rows for request in worker.batch._held if not _answered(worker.batch._events, request))
            assert worker.batch.free_rows + held == self.runner.rows, (worker.batch.free_rows, held)

    def _check_end(self) -> None:
        """Everybody was answered once, and nothing is left."""
        assert self.runner.waiting == 0
        assert self.admission._reserved == 0
        assert all(worker.batch.free_rows == self.runner.rows for worker in self.runner._supervisor.workers)
        for call in self.calls:
            assert not call.waits, call
            assert set(call.answers.values()) <= {1}, call
            if not (call.refusal or call.failed):
                assert len(call.answers) == len(call.lengths), call


def _answered(events: Sequence[tuple[object, Event]], request: object) -> bool:
    """Its last event is on its way."""
    return any(one is request and not isinstance(event, Tokens) for one, event in events)


@contextmanager
def told(seed: int) -> Iterator[None]:
    """Names the seed of a schedule that fails."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
