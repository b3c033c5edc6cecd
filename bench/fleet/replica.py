"""One server, simulated by what its steps cost: workers, rows, and a queue, with nothing decoded.

Between two events the rows of a worker are the same, and so are its steps. So a worker counts steps, not seconds: a
text that has so many to go leaves when the count is there (as in processor sharing by virtual time: Parekh and
Gallager 1993). An event costs a heap operation, however many steps lie between.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from engine.queueing.cost import Measured


@dataclass(slots=True, eq=False)
class Text:
    """A text, and what becomes of it. Seconds are from the start of the simulation."""

    arrived: float
    source_tokens: int
    steps: int
    rows: int
    cost_s: float
    """Seconds of a worker that the engine expects it to take."""
    answered: float = inf
    replica: int = -1


@dataclass(slots=True)
class Worker:
    """A running batch."""

    measured: Measured
    rows: int = 0
    now: float = 0.0
    """When its count was brought up to date. Ahead of the clock while it encodes."""
    steps: float = 0.0
    leaving: list[tuple[float, int, Text]] = field(default_factory=list)
    """A heap: at which count each of its texts leaves."""

    @property
    def step_s(self) -> float:
        return self.measured.fixed + self.measured.each * self.rows

    @property
    def next_s(self) -> float:
        """When the next text leaves, if none joins before."""
        return self.now + (self.leaving[0][0] - self.steps) * self.step_s if self.leaving else inf

    def move_to(self, now: float) -> None:
        """Steps until then."""
        if now > self.now:
            if self.leaving:
                self.steps += (now - self.now) / self.step_s
            self.now = now

    def join(self, text: Text, now: float, order: int) -> None:
        """Encodes a text, for which its other rows wait, and takes it on board."""
        self.move_to(now)
        self.now += self.measured.token * text.source_tokens
        self.rows += text.rows
        heappush(self.leaving, (self.steps + text.steps, order, text))

    def leave(self) -> Text:
        """The next one does."""
        self.move_to(self.next_s)
        _, _, text = heappop(self.leaving)
        self.rows -= text.rows
        return text


class Replica:
    """A server."""

    def __init__(self, workers: int, rows: int, measured: Measured) -> None:
        """`rows`: of each worker's batch."""
        self.workers = [Worker(measured) for _ in range(workers)]
        self.waiting = deque[Text]()
        self.texts = 0
        self.backlog_s = 0.0
        """What its texts cost, of a worker."""
        self._rows, self._joined = rows, 0

    @property
    def next_s(self) -> float:
        """When its next text is answered, if none comes before."""
        return min(worker.next_s for worker in self.workers)

    def come(self, text: Text, now: float) -> None:
        """A text is routed here."""
        self.texts += 1
        self.backlog_s += text.cost_s
        self.waiting.append(text)
        self._admit(now)

    def answer(self) -> Text:
        """The next text is answered."""
        worker = min(self.workers, key=lambda one: one.next_s)
        text = worker.leave()
        text.answered = worker.now
        self.texts -= 1
        self.backlog_s -= text.cost_s
        self._admit(worker.now)
        return text

    def lose(self) -> list[Text]:
        """It is gone. Returns what it had."""
        lost = [text for worker in self.workers for _, _, text in worker.leaving]
        lost += self.waiting
        self.__init__(len(self.workers), self._rows, self.workers[0].measured)  # type: ignore[misc]
        return lost

    def _admit(self, now: float) -> None:
        """Those that wait join the worker with the most free rows, as far as there are any."""
        while self.waiting:
            worker = min(self.workers, key=lambda one: one.rows)
            if worker.rows + self.waiting[0].rows > self._rows:
                return
            self._joined += 1
            worker.join(self.waiting.popleft(), max(now, worker.now), self._joined)
