"""Calls of a simulated server, and schedules of them: what comes when, and what fails when."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from engine.request import Translate
from tests.engine.calling import END
from tests.simulation.machine import POISON, Fault


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
    stream: bool = False
    poison: bool = False
    """Its texts make every engine crash."""
    reads_s: float = 0.0
    """So long it reads each thing that it is told."""
    read_until: float = 0.0
    """When it will have read all that it was told so far."""
    arrived: float = 0.0
    ended: float | None = None
    refusal: str = ""
    answers: Counter[int] = field(default_factory=Counter)
    """How often each content was answered."""
    requests: list[Translate] = field(default_factory=list)
    failed: bool = False

    def source_ids(self, length: int) -> tuple[int, ...]:
        """A text of its."""
        source = (7,) * length if self.endless else (*(5 + (i + length) % 9 for i in range(length - 1)), END)
        return (POISON, *source) if self.poison else source

    @property
    def in_time(self) -> bool:
        """Answered as a whole, while somebody waited."""
        return self.ended is not None and not self.failed and self.ended - self.arrived <= (self.deadline_s or 1e9)

    @property
    def waits(self) -> bool:
        """It was let in, and not all of it is answered."""
        return not self.refusal and self.ended is None

    @property
    def unanswered(self) -> list[Translate]:
        """What of it is to be answered yet."""
        return [request for number, request in enumerate(self.requests) if not self.answers[number]]


@dataclass(frozen=True)
class Arrival:
    """A call that comes `at` seconds after the start. The same again whenever a schedule is run."""

    at: float
    lengths: tuple[int, ...]
    beams: int = 1
    most: int = 8
    endless: bool = False
    caller: str = "a"
    bulk: bool = False
    deadline_s: float | None = None
    leaves_after_s: float | None = None
    stream: bool = False
    poison: bool = False
    reads_s: float = 0.0

    def call(self) -> Call:
        """That nothing has become of yet."""
        fields = {name: value for name, value in vars(self).items() if name != "at"}
        return Call(**fields)


@dataclass(frozen=True)
class Schedule:
    """Everything that happens to a server from outside."""

    seed: int
    """Of what is left to chance: how long steps take."""
    arrivals: tuple[Arrival, ...]
    faults: tuple[Fault, ...] = ()
    workers: int = 1
    rows: int = 4
    max_waiting: int = 1024
    restarts: int = 20
    """That the supervisor may make."""
    drain_at: float | None = None
    """When it is asked to end."""
    grace_s: float = 0.05
    drains: bool = True
    """False: it is closed at once, with all that runs and waits, and callers come who have not been told."""
    express_rows: int = 0
    """Of the express worker; 0: there is none."""

    def smaller(self) -> Iterator["Schedule"]:
        """Schedules with less in them, those with much less first."""
        for name in ("arrivals", "faults"):
            items = getattr(self, name)
            size = len(items)
            while size:
                for first in range(0, len(items), size):
                    yield replace(self, **{name: items[:first] + items[first + size :]})
                size //= 2
        for number, arrival in enumerate(self.arrivals):
            for change in simpler(arrival):
                yield replace(self, arrivals=(*self.arrivals[:number], change, *self.arrivals[number + 1 :]))
        if self.drain_at is not None:
            yield replace(self, drain_at=None)
            yield replace(self, drains=True)
        if self.workers > 1:
            yield replace(self, workers=1)
        if self.express_rows:
            yield replace(self, express_rows=0)


def simpler(arrival: Arrival) -> Iterator[Arrival]:
    """A call with one thing less."""
    if len(arrival.lengths) > 1:
        yield replace(arrival, lengths=arrival.lengths[:1])
    for name, plain in vars(Arrival(arrival.at, arrival.lengths)).items():
        if getattr(arrival, name) != plain:
            yield replace(arrival, **{name: plain})


def short_schedule(seed: int) -> Schedule:
    """A few calls in some steps' time, and often something that fails: thousands of them are run in a minute."""
    chance = random.Random(seed)
    kinds: list[str] = chance.choice([[], [], ["crash"], ["hang"], ["memory"], ["crash", "hang", "memory"]])
    faults = [Fault(chance.uniform(0, 0.06), chance.choice(kinds)) for _ in range(chance.randint(1, 3)) if kinds]  # type: ignore[arg-type]
    return Schedule(
        seed,
        tuple(some_arrival(chance) for _ in range(chance.randint(2, 8))),
        tuple(faults),
        workers=chance.choice([1, 1, 2, 3]),
        rows=chance.choice([2, 4, 4, 6]),
        max_waiting=chance.choice([3, 8, 1024]),
        restarts=chance.choice([0, 1, 20, 20, 20]) if faults else 20,
        drain_at=chance.choice([None, None, None, chance.uniform(0, 0.06)]),
        grace_s=chance.choice([0.0, 0.02, 1.0]),
        drains=chance.random() < 0.7,
        express_rows=chance.choice([0, 1, 2]),
    )


def some_arrival(chance: random.Random) -> Arrival:
    """Any call of a short schedule."""
    return Arrival(
        chance.uniform(0, 0.05) + chance.choice([0, 0, 0, 11.5]),  # before a hang is noticed, and after
        tuple(chance.randint(2, 7) for _ in range(chance.choice([1, 1, 1, 2, 3]))),
        beams=chance.choice([1, 1, 1, 2]),
        most=chance.choice([3, 8, 8]),
        endless=chance.random() < 0.1,
        caller=chance.choice("abc"),
        bulk=chance.random() < 0.3,
        deadline_s=chance.choice([None, None, None, 0.01, 0.03, 0.1]),
        leaves_after_s=chance.choice([None, None, None, 0.0, 0.01, 0.03]),
        stream=chance.random() < 0.3,
        poison=chance.random() < 0.03,
        reads_s=chance.choice([0.0, 0.0, 0.0, 0.002, 0.02]),
    )


def long_schedule(seed: int) -> Schedule:
    """Forty calls in a second and a half, in long texts and wide beams."""
    chance = random.Random(seed)
    arrivals = tuple(
        Arrival(
            chance.uniform(0, 1.5),
            tuple(chance.randint(2, 40) for _ in range(chance.choice([1, 1, 2, 4, 12]))),
            beams=chance.choice([1, 1, 1, 2, 4, 8, 16]),
            most=chance.choice([8, 60, 200]),
            endless=chance.random() < 0.1,
            caller=chance.choice("abcd"),
            bulk=chance.random() < 0.3,
            deadline_s=chance.choice([None, None, 0.02, 0.3, 1.0]),
            leaves_after_s=chance.choice([None, None, 0.1, 0.5]),
        )
        for _ in range(40)
    )
    return Schedule(
        seed,
        arrivals,
        workers=1 + seed % 3,
        rows=16,
        max_waiting=(12, 40, 1024)[seed // 3 % 3],
        express_rows=4 * (seed % 2),
    )
