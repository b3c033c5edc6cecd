"""A clock that nobody waits for, a decoder that takes its time by it and fails when told to, and threads in turns."""

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from typing import Literal

import numpy as np

from engine.decoder import Ask, Found, TokenIds
from engine.supervision.worker import Worker
from tests.fakes import BEST, SECOND, WAIT_S, CopyCache, CopyDecoder, CopySource

POISON = 77
"""A source with this token makes every engine crash."""


@dataclass(frozen=True)
class Speed:
    """Of a simulated engine, in seconds."""

    step: float = 0.002
    row: float = 0.0003
    """Of a step, for each of its rows."""
    token: float = 0.0001
    """Of an encoder run."""


SPEED = Speed()


@dataclass
class Clock:
    """Seconds that somebody sets."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, order=True)
class Fault:
    """What the first encoder run or step after `at` does instead of its work."""

    at: float
    """Seconds after the start."""
    kind: Literal["crash", "hang", "memory"]


class Crash(RuntimeError):
    """What a crashed engine raises."""


class SlowDecoder(CopyDecoder):
    """Takes its time, by the clock, and not always the same."""

    def __init__(self, clock: Clock, chance: random.Random, speed: Speed) -> None:
        super().__init__()
        self.clock, self.speed, self._chance = clock, speed, chance
        self._began = clock.now
        self.faults: list[Fault] = []
        """A heap of those to come."""
        self.failed: list[str] = []
        """What has failed."""
        self.hang: Callable[[], None] = lambda: None
        """Returns when the kernel does."""

    def will_fail(self, faults: Sequence[Fault]) -> None:
        """So it will, from now on."""
        self.faults = list(faults)
        heapify(self.faults)

    def fails_next(self) -> bool:
        """The next run or step does not do its work."""
        return bool(self.faults) and self.faults[0].at <= self.clock.now - self._began

    def work(self, seconds: float) -> None:
        """Some time passes, or something fails."""
        if self.fails_next():
            fault = heappop(self.faults)
            self.failed.append(fault.kind)
            if fault.kind == "crash":
                raise Crash("the engine crashed")
            if fault.kind == "memory":
                raise MemoryError
            self.hang()
            if self._chance.random() < 0.3:
                raise Crash("the kernel came back with an error")
        self.clock.now += seconds * self._chance.uniform(0.7, 1.3)

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[CopySource]:
        self.work(self.speed.token * sum(map(len, sources)))
        return super().encode(sources, named)

    def open_cache(self, rows: int) -> "SlowCache":
        return SlowCache(self, rows)


class SlowCache(CopyCache):
    """Of a slow decoder."""

    def __init__(self, decoder: SlowDecoder, capacity: int) -> None:
        super().__init__(decoder, capacity)
        self._slow = decoder

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        self._slow.work(self._slow.speed.step + self._slow.speed.row * self.live)
        if any(POISON in source.source_ids for source, _ in self.rows):
            self._slow.failed.append("poison")
            raise Crash("the engine crashed of a text")
        super().begin_step(token_ids, ask)

    def end_step(self) -> Found:
        """Without a gate: nobody stops time here."""
        k, self._begun = self._begun, 0
        assert k, "no step was begun"
        best = [source.source_ids[min(position, len(source.source_ids) - 1)] for source, position in self.rows]
        self.rows = [(source, position + 1) for source, position in self.rows]
        ranks = np.arange(k)
        log_probs = np.empty((len(best), k), np.float32)
        log_probs[:] = np.where(ranks == 0, BEST, SECOND - ranks)
        return Found(token_ids=(np.array(best)[:, None] + ranks) % self._slow.vocabulary_size, log_probs=log_probs)


class Idle(BaseException):
    """A worker waits: another's turn."""


class Turns:
    """Stands for `threading` where the engine makes its threads and its lock: all of them take turns."""

    def __init__(self, started: "Callable[[Thread], None]", joined: "Callable[[Thread, float], None]") -> None:
        self._started, self._joined = started, joined
        self.current: Thread | None = None
        """Whose turn it is."""
        self.Event = threading.Event

    def Thread(self, target: Callable[[], None], name: str, daemon: bool) -> "Thread":
        return Thread(self, name, target.__self__)  # type: ignore[attr-defined]

    def RLock(self) -> None: ...

    def Condition(self, lock: None) -> "Condition":
        return Condition(self)


@dataclass(eq=False)
class Thread:
    """Of a worker. The world makes its turns."""

    turns: Turns
    name: str
    worker: Worker
    """Whose life it is."""
    ident: int | None = None
    ended: bool = False
    stuck: "Stuck | None" = None

    def start(self) -> None:
        self.ident = id(self)
        self.turns._started(self)

    def join(self, timeout: float) -> None:
        self.turns._joined(self, timeout)

    def is_alive(self) -> bool:
        return not self.ended


class Condition:
    """Is nobody else's while it is held, as nobody else has a turn."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._waiting: deque[Thread] = deque()
        """The first to be woken first."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def wait(self) -> None:
        """Ends the turn; the next one asks again."""
        assert self._turns.current is not None
        self._waiting.append(self._turns.current)
        raise Idle

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            self._turns._started(self._waiting.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


@dataclass
class Stuck:
    """A turn on a thread of its own, as its kernel may not come back. The world goes on without it."""

    since: float
    _left: threading.Event = field(default_factory=threading.Event)
    _back: threading.Event = field(default_factory=threading.Event)
    hangs: bool = False

    def make(self, turn: Callable[[], None]) -> bool:
        """Makes the turn until it ends or hangs. True: it has ended."""

        def whole() -> None:
            try:
                turn()
            finally:
                self.hangs = False
                self._left.set()

        threading.Thread(target=whole, daemon=True).start()
        assert self._left.wait(WAIT_S)
        self._left.clear()
        return not self.hangs

    def hang(self) -> None:
        """Called in the turn: comes back when it is let."""
        self.hangs = True
        self._left.set()
        assert self._back.wait(WAIT_S)

    def come_back(self) -> None:
        """Lets the kernel come back, and the turn end."""
        self._back.set()
        assert self._left.wait(WAIT_S)


def stuck_turn(worker: Worker) -> Stuck | None:
    """The turn that its thread hangs in."""
    assert isinstance(worker.thread, Thread)
    return worker.thread.stuck
