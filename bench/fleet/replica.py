"""One server, simulated by what its steps cost: workers, rows, and a queue, with nothing decoded.

Between two events the rows of a worker are the same, and so are its steps. So a worker counts steps, not seconds: a
text that has so many to go leaves when the count is there (as in processor sharing by virtual time: Parekh and
Gallager 1993). An event costs a heap operation, however many steps lie between. A text that comes joins at the end of a
step, when the rows that run have had as much time as the encoder run before.
"""

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf
from operator import attrgetter

from engine.queueing.cost import Measured

ROUNDING = 1e-6
"""Steps that a count may be off, after sums of seconds."""
UNCOUNTED = sys.maxsize
"""Number of a text whose end nobody looks at."""
_next_s, _rows = attrgetter("next_s"), attrgetter("rows")


@dataclass(slots=True, eq=False)
class Text:
    """A text. Seconds are from the start of the simulation."""

    arrived: float
    source_tokens: int
    steps: int
    rows: int
    cost_s: float
    """Seconds of a worker that the engine expects it to take."""
    number: int = 0
    """Of all that come."""


@dataclass(slots=True)
class Worker:
    """A running batch."""

    measured: Measured
    rows: int = 0
    now: float = 0.0
    """When its count was brought up to date. Ahead of the clock while it encodes."""
    steps: float = 0.0
    gate: float = 0.0
    """Newcomers are not encoded before: rows that have waited for encoder runs get as much time for themselves."""
    leaving: list[tuple[float, int, Text]] = field(default_factory=list)
    """A heap: at which count each of its texts leaves."""
    next_s: float = inf
    """When the next text leaves, if none joins before."""

    @property
    def step_s(self) -> float:
        return self.measured.fixed + self.measured.each * self.rows

    def opens_s(self, now: float) -> float:
        """When it may take on newcomers: at once if it has nothing to do, else at the end of a step."""
        if not self.leaving:
            return max(now, self.now)
        ahead = (max(now, self.gate, self.now) - self.now) / self.step_s + self.steps
        return self.now + (ceil(ahead - ROUNDING) - self.steps) * self.step_s

    def move_to(self, now: float) -> None:
        """Steps until then."""
        if now > self.now:
            if self.leaving:
                self.steps += (now - self.now) / self.step_s
            self.now = now

    def join(self, texts: Sequence[Text], now: float, order: int) -> None:
        """Encodes texts together, for which its other rows wait, and takes them on board."""
        self.move_to(now)
        self.steps = float(round(self.steps))
        encode_s = sum(self.measured.token * text.source_tokens for text in texts)
        self.now += encode_s
        if self.leaving:
            self.gate = self.now + encode_s
        for text in texts:
            self.rows += text.rows
            heappush(self.leaving, (self.steps + text.steps, order, text))
            order += 1
        self._look_ahead()

    def leave(self) -> Text:
        """The next one does."""
        self.move_to(self.next_s)
        steps, _, text = heappop(self.leaving)
        self.steps = steps
        self.rows -= text.rows
        self._look_ahead()
        return text

    def copied(self, since: float) -> "Worker":
        """The same, with times from then on."""
        now, gate, next_s = self.now - since, self.gate - since, self.next_s - since
        return Worker(self.measured, self.rows, now, self.steps, gate, self.leaving.copy(), next_s)

    def _look_ahead(self) -> None:
        self.next_s = self.now + (self.leaving[0][0] - self.steps) * self.step_s if self.leaving else inf


class Replica:
    """A server."""

    def __init__(self, workers: int, rows: int, measured: Measured) -> None:
        """`rows`: of each worker's batch."""
        self.workers = [Worker(measured) for _ in range(workers)]
        self.waiting = deque[Text]()
        self.texts = 0
        self.backlog_s = 0.0
        """What its texts cost, of a worker."""
        self._rows, self._joined, self._now = rows, 0, 0.0
        self._at, self._acting, self._takes = inf, self.workers[0], False

    @property
    def busy(self) -> int:
        """Workers that have something to do."""
        return sum(bool(worker.leaving) for worker in self.workers)

    def plan(self) -> float:
        """When something happens here next, if no text comes before."""
        self._acting = min(self.workers, key=_next_s)
        at, self._takes = self._acting.next_s, False
        if self.waiting:
            taker = min(self.workers, key=_rows)
            if taker.rows + self.waiting[0].rows <= self._rows and (opens := taker.opens_s(self._now)) < at:
                self._acting, self._takes, at = taker, True, opens
        self._at = at
        return at

    def come(self, text: Text, now: float) -> None:
        """A text is routed here."""
        self._now = now
        self.texts += 1
        self.backlog_s += text.cost_s
        self.waiting.append(text)

    def go_on(self) -> Text | None:
        """What was planned happens: a text is answered, which this returns, or those that wait are taken on."""
        self._now = self._at
        if self._takes:
            self._take(self._acting)
            return None
        text = self._acting.leave()
        self.texts -= 1
        self.backlog_s -= text.cost_s
        return text

    def lose(self) -> list[Text]:
        """It is gone. Returns what it had."""
        lost = [text for worker in self.workers for _, _, text in worker.leaving]
        lost += self.waiting
        self.__init__(len(self.workers), self._rows, self.workers[0].measured)  # type: ignore[misc]
        return lost

    def copied(self, since: float) -> "Replica":
        """The same, with times from then on, and the same texts."""
        other = Replica(len(self.workers), self._rows, self.workers[0].measured)
        other.workers = [worker.copied(since) for worker in self.workers]
        other.waiting = self.waiting.copy()
        other.texts, other.backlog_s, other._joined = self.texts, self.backlog_s, self._joined
        return other

    def uncount(self) -> None:
        """None of its texts counts any more."""
        for text in [*self.waiting, *(text for worker in self.workers for _, _, text in worker.leaving)]:
            text.number = UNCOUNTED

    def _take(self, taker: Worker) -> None:
        """As many as leave it with no more rows than the others, but one at least."""
        taken, rows = list[Text](), taker.rows
        others = min((one.rows for one in self.workers if one is not taker), default=self._rows)
        while self.waiting and rows + self.waiting[0].rows <= self._rows and (not taken or rows <= others):
            taken.append(self.waiting.popleft())
            rows += taken[-1].rows
        taker.join(taken, self._now, self._joined)
        self._joined += len(taken)
