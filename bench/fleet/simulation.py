"""A fleet under texts that come at random: one heap of what happens next."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import cycle
from math import inf

import numpy as np

from bench.fleet.replica import Replica, Text
from bench.fleet.routing import LONG_TOKENS, Reports, routes
from engine.queueing.cost import CostModel, Measured, Work

CHUNK = 100_000
"""Times that are drawn at once."""


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
    long_share: float = 0.0
    """Of the replicas, that long texts have for themselves where texts are routed by length."""


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
    """What became of texts."""

    all_s: np.ndarray
    """Seconds from arrival to answer of each, in the order in which they came."""
    uncounted: int
    """Of the first ones: the fleet begins empty."""
    replicas: Sequence[Replica]
    """As they were at the end, with texts that came after these."""
    end_s: float

    @property
    def seconds(self) -> np.ndarray:
        """Of those that count."""
        return self.all_s[self.uncounted :]

    @property
    def after_loss(self) -> np.ndarray:
        """Of those that came in the second half."""
        return self.all_s[len(self.all_s) // 2 :]

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.seconds, q))


def texts_of(fleet: Fleet, lengths: Lengths, due: Iterable[float]) -> Iterator[Text]:
    """One for each time, of lengths by chance."""
    chance, costs = random.Random(fleet.seed + 1), costs_of(fleet, lengths)
    for number, arrived in enumerate(due):
        kind = int(chance.random() * len(lengths.steps))
        source, steps = lengths.source_tokens[kind], lengths.steps[kind]
        yield Text(arrived, source, steps, lengths.beams, costs[kind], number)


def costs_of(fleet: Fleet, lengths: Lengths) -> list[float]:
    """Seconds of a worker that the engine expects each of these texts to take."""
    cost = CostModel(fleet.workers, fleet.rows, fleet.measured)
    return [cost.of_work(Work(1, source, source, lengths.beams, 512)) for source in lengths.source_tokens]


def long_share(fleet: Fleet, lengths: Lengths) -> float:
    """Of the work, that long texts are."""
    costs = costs_of(fleet, lengths)
    of_long = (cost for cost, source in zip(costs, lengths.source_tokens, strict=True) if source >= LONG_TOKENS)
    return sum(of_long) / sum(costs)


def poisson(rate: float, seed: int) -> Iterator[float]:
    """When texts come, without end, at so many a second on average."""
    chance, now = np.random.default_rng(seed), 0.0
    while True:
        times: list[float] = (now + np.cumsum(chance.exponential(1 / rate, CHUNK))).tolist()
        yield from times
        now = times[-1]


def simulate(
    fleet: Fleet,
    texts: Iterable[Text],
    count: int,
    uncounted: int = 0,
    begun: Found | None = None,
    waited_for: float = 1.0,
) -> Found:
    """What becomes of the first `count` texts. They come in order, and others after them until these are answered.

    waited_for: such a share of them; the rest is left with infinity, and no quantile beyond the share is known
    begun: what a smaller fleet came to, whose replicas this one begins with, each as often as another. None: it begins
    empty
    """
    replicas = [Replica(fleet.workers, fleet.rows, fleet.measured) for _ in range(fleet.replicas)]
    if begun is not None:
        for one in begun.replicas:
            one.uncount()
        some = cycle(begun.replicas)
        replicas = [next(some).copied(begun.end_s) for _ in range(fleet.replicas)]
    run = _Run(fleet, replicas, count)
    few = (1 - waited_for) * count
    for number in range(fleet.replicas if begun else 0):
        run.plan(number)
    for text in texts:
        run.run_until(text.arrived)
        if run.left <= few:
            break
        run.reports.tick(text.arrived)
        if fleet.zone_loss and text.number == count // 2:
            run.lose_zone()
        run.come(text)
    if run.left > few:
        run.run_until(inf)
    return Found(run.seconds, uncounted, replicas, run.clock.now)


class _Run:
    """A fleet at work: what each replica does next, on one heap."""

    def __init__(self, fleet: Fleet, replicas: Sequence[Replica], count: int) -> None:
        """count: how many of the first texts are waited for."""
        self._replicas, self._count = replicas, count
        self._alive = list(range(fleet.replicas))
        self.reports = Reports(replicas, fleet.report_s)
        self._route = routes(self.reports, self._alive, random.Random(fleet.seed), fleet.long_share)[fleet.routing]
        self.clock = _Clock(fleet.cores, replicas)
        self._planned = [inf] * fleet.replicas
        """When something ends in each replica, as it was last planned."""
        self._ends: list[tuple[float, int]] = []
        """The heap of these, and of older plans."""
        self.seconds, self.left = np.full(count, inf), count
        """From arrival to answer of each text that is waited for, and how many are not answered."""

    def plan(self, number: int) -> None:
        """Something has changed in a replica."""
        self.reports.changed(number)
        self._planned[number] = at = self._replicas[number].plan()
        if at < inf:
            heappush(self._ends, (at, number))

    def run_until(self, now: float) -> None:
        """Whatever ends before."""
        while self._ends and self.clock.real_at(self._ends[0][0]) <= now:
            at, number = heappop(self._ends)
            if at == self._planned[number]:  # and no older plan
                self.clock.move_to(at)
                text = self._replicas[number].go_on()
                if text is not None and text.number < self._count:
                    self.left -= 1
                    self.seconds[text.number] = self.clock.real - text.arrived
                self.clock.changed(number)
                self.plan(number)
        self.clock.wait_until(now)

    def come(self, text: Text) -> None:
        """A text goes to the replica that routing finds for it."""
        number = self._route(text)
        self._replicas[number].come(text, self.clock.now)
        self.plan(number)

    def lose_zone(self) -> None:
        """A third of the replicas is gone, and their texts come again."""
        lost = self._alive[::3][: len(self._alive) // 3]
        self._alive[:] = sorted(set(self._alive) - set(lost))
        for number in lost:
            self._planned[number] = inf
            for again in self._replicas[number].lose():
                self.come(again)
            self.clock.changed(number)


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
        if self._cores is None:
            return
        busy = self._replicas[number].busy
        self._busy += busy - self._of[number]
        self._of[number] = busy


def capacity(fleet: Fleet, lengths: Lengths) -> float:
    """Texts a second of one replica whose batches are always full: of as many as a deep queue gives."""
    one = replace(fleet, replicas=1, routing="round robin", report_s=0.0, zone_loss=False)
    count = 40 * fleet.workers * fleet.rows // lengths.beams
    ends = np.sort(simulate(one, texts_of(one, lengths, [0.0] * count), count).all_s)
    return (count // 2) / float(ends[3 * count // 4] - ends[count // 4])
