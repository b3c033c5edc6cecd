"""A fleet under texts that come at random: one heap of what happens next."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf

import numpy as np

from bench.fleet.replica import Replica, Text
from bench.fleet.routing import LONG_TOKENS, Reports, routes
from engine.queueing.cost import CostModel, Measured, Work

WARM = 0.25
"""Share of the texts, the first ones, that are not counted: the fleet begins empty."""


@dataclass(frozen=True)
class Fleet:
    """What is simulated."""

    replicas: int
    measured: Measured
    workers: int = 2
    """Of a replica."""
    rows: int = 64
    routing: str = "power of two"
    report_s: float = 0.0
    """How old reports of load become."""
    zone_loss: bool = False
    """A third of the replicas is lost, when half of the texts have come. Their texts come again at once."""
    seed: int = 0
    cores: float | None = None
    """That all replicas share, where they are processes of one machine. None: each worker has one."""


@dataclass(frozen=True)
class Lengths:
    """Of texts."""

    source_tokens: Sequence[int]
    steps: Sequence[int]
    """Of each of these sources."""
    beams: int = 1
    characters: float = 130.0
    """Of a text, on average."""


@dataclass(frozen=True)
class Found:
    """Seconds from arrival to answer."""

    seconds: np.ndarray
    after_loss: np.ndarray
    """Of those that came in the second half."""

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.seconds, q))


def texts_of(fleet: Fleet, lengths: Lengths, due: Sequence[float]) -> list[Text]:
    """One for each time, of lengths by chance."""
    chance, cost = random.Random(fleet.seed + 1), CostModel(fleet.workers, fleet.rows, fleet.measured)
    made = list[Text]()
    for arrived in due:
        kind = int(chance.random() * len(lengths.steps))
        source, steps = lengths.source_tokens[kind], lengths.steps[kind]
        work = Work(1, source, source, lengths.beams, 512)
        made.append(Text(arrived, source, steps, lengths.beams, cost.of_work(work)))
    return made


def poisson(rate: float, count: int, seed: int) -> list[float]:
    """When so many come, at so many a second on average."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, count)
    times: list[float] = np.cumsum(gaps).tolist()
    return times


def simulate(fleet: Fleet, texts: Sequence[Text]) -> Found:
    """What becomes of texts, which come in order."""
    chance = random.Random(fleet.seed)
    replicas = [Replica(fleet.workers, fleet.rows, fleet.measured) for _ in range(fleet.replicas)]
    alive, reports = list(range(fleet.replicas)), Reports(replicas, fleet.report_s)
    work_s = sum(text.cost_s for text in texts)
    long_s = sum(text.cost_s for text in texts if text.source_tokens >= LONG_TOKENS)
    route = routes(reports, alive, chance, long_s / work_s)[fleet.routing]
    planned = [inf] * fleet.replicas
    ends: list[tuple[float, int]] = []
    clock = _Clock(fleet.cores, replicas)

    def plan(number: int) -> None:
        reports.changed(number)
        planned[number] = at = replicas[number].next_s
        if at < inf:
            heappush(ends, (at, number))

    def run_until(now: float) -> None:
        while ends and clock.real_at(ends[0][0]) <= now:
            at, number = heappop(ends)
            if at == planned[number]:  # and no older plan
                clock.move_to(at)
                text = replicas[number].go_on()
                if text is not None:
                    text.answered = clock.real
                clock.changed(number)
                plan(number)
        clock.wait_until(now)

    def come(text: Text) -> None:
        number = route(text)
        replicas[number].come(text, clock.now)
        plan(number)

    for index, text in enumerate(texts):
        run_until(text.arrived)
        reports.tick(text.arrived)
        if fleet.zone_loss and index == len(texts) // 2:
            lost = alive[::3][: len(alive) // 3]
            alive[:] = sorted(set(alive) - set(lost))
            for number in lost:
                planned[number] = inf
                for again in replicas[number].lose():
                    come(again)
                clock.changed(number)
        come(text)
    run_until(inf)
    seconds = np.array([text.answered - text.arrived for text in texts])
    return Found(seconds[int(WARM * len(texts)) :], seconds[len(texts) // 2 :])


class _Clock:
    """The time of workers, which goes slower than the real one while more of them are busy than there are cores."""

    def __init__(self, cores: float | None, replicas: Sequence[Replica]) -> None:
        """cores: None is one for each worker."""
        self._cores, self._replicas = cores, replicas
        self._busy, self._of = 0, [0] * len(replicas)
        self.now = self.real = 0.0

    @property
    def _pace(self) -> float:
        """Real seconds for each of a worker's."""
        return 1.0 if self._cores is None else max(1.0, self._busy / self._cores)

    def real_at(self, now: float) -> float:
        """What the real time will be, if nobody begins or ends to be busy before."""
        return self.real + (now - self.now) * self._pace

    def move_to(self, now: float) -> None:
        self.real, self.now = self.real_at(now), now

    def wait_until(self, real: float) -> None:
        """Nothing happens until then."""
        if real < inf:
            self.now, self.real = self.now + (real - self.real) / self._pace, real

    def changed(self, number: int) -> None:
        """A replica may have more or fewer workers with something to do."""
        busy = self._replicas[number].busy
        self._busy += busy - self._of[number]
        self._of[number] = busy


def capacity(fleet: Fleet, lengths: Lengths) -> float:
    """Texts a second of one replica whose batches are always full: of as many as a deep queue gives."""
    one = replace(fleet, replicas=1, routing="round robin", report_s=0.0, zone_loss=False)
    count = 40 * fleet.workers * fleet.rows // lengths.beams
    texts = texts_of(one, lengths, [0.0] * count)
    simulate(one, texts)
    ends = sorted(text.answered for text in texts)
    return (count // 2) / (ends[3 * count // 4] - ends[count // 4])
