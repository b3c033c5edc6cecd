"""What requests cost: seconds of a worker, as measured at the start and corrected by every step and answer since.

A step takes `fixed + each * rows` seconds, an encoder run so many for each token. Both are measured once; from then on
each worker has one factor for its steps and one for its encoder, which follow what really happens: other processes,
longer rows, a busy interpreter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from engine.request import Request, Translate

FOLLOW = 1 / 64
"""Weight of the newest measurement, once there are so many."""
PRIOR_S = 0.01
"""What a worker has measured at first, as seconds: its first step may be a slow one."""
MOST_RATIO = 8.0
"""Target tokens for each source token that one answer may teach, so that an endless one does not teach much."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds, as one worker was measured that had the machine to itself."""

    fixed: float = 0.001
    """Of a step, whatever its rows."""
    each: float = 0.0001
    """Of a step, for each row."""
    token: float = 0.0001
    """Of the encoder, for each source token."""


@dataclass(slots=True)
class Mean:
    """A mean that forgets. One thread writes."""

    value: float
    count: int = 0

    def add(self, value: float) -> None:
        """One more value."""
        self.count += 1
        self.value += max(FOLLOW, 1 / self.count) * (value - self.value)


@dataclass(slots=True)
class Pace:
    """How much longer things take than they were measured, the long ones counting for more. One thread writes."""

    taken: float = PRIOR_S
    expected: float = PRIOR_S
    value: float = 1.0
    """Seconds for each second that was measured. It is asked for far more often than it changes."""

    def add(self, taken: float, expected: float) -> None:
        """Something took so many seconds, and would have taken so many."""
        self.taken += taken - FOLLOW * self.taken
        self.expected += expected - FOLLOW * self.expected
        self.value = self.taken / self.expected


class WorkerCost:
    """What one running batch teaches. Only its thread writes."""

    def __init__(self, measured: Measured) -> None:
        self.measured = measured
        self._step, self._encode = Pace(), Pace()
        self._step_lengths, self._beam_lengths = Mean(1.25), Mean(1.25)

    def step(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        self._step.add(seconds, self.measured.fixed + self.measured.each * rows)

    def encoded(self, tokens: int, seconds: float) -> None:
        """An encoder run of so many source tokens took so long."""
        if tokens:
            self._encode.add(seconds, self.measured.token * tokens)

    def answered(self, request: Request, steps: int) -> None:
        """A request was answered after so many steps."""
        lengths = self._step_lengths if request.rows <= 1 else self._beam_lengths
        lengths.add(min(steps / len(request.source_ids), MOST_RATIO))

    def step_s(self, rows: float) -> float:
        """Seconds of a step of so many rows."""
        return self._step.value * (self.measured.fixed + self.measured.each * rows)

    def turn_s(self, rows: float) -> float:
        """Seconds of a step of so many rows, and of encoding whoever takes the place of those that end meanwhile."""
        return self.step_s(rows) + rows * self._newcomer_s()

    def rows_within(self, seconds: float) -> float:
        """Rows whose turn takes so long."""
        fixed, each = self._step.value * self.measured.fixed, self._step.value * self.measured.each
        return (seconds - fixed) / (each + self._newcomer_s())

    def _newcomer_s(self) -> float:
        """Seconds of the encoder for each row and step, where as many come as end."""
        return self.token_s() / self._step_lengths.value

    def token_s(self) -> float:
        """Seconds of the encoder for a source token."""
        return self._encode.value * self.measured.token

    def steps(self, tokens: float, beams: int) -> float:
        """That a source of so many tokens is likely to take."""
        return 1 + tokens * (self._step_lengths if beams == 1 else self._beam_lengths).value


class Work(NamedTuple):
    """What a call wants, before it is tokenised."""

    contents: int
    tokens: float
    """Source tokens of all contents, about."""
    longest: float
    """Source tokens of the longest, about."""
    beams: int
    """0: it wants no new tokens."""
    max_new_tokens: int
    caller: str = ""
    bulk: bool = False
    given: float = 0.0
    """Target tokens that are given, about."""
    passes: int = 0
    """Hypotheses of each content that are looked at once more, when they are found."""


class CostModel:
    """What work costs on some workers with running batches of so many rows. May be asked from any thread."""

    def __init__(self, workers: int, rows: int, measured: Measured | None = None) -> None:
        self.rows = rows
        self.workers: Sequence[WorkerCost] = [WorkerCost(measured or Measured()) for _ in range(workers)]
        self.express = WorkerCost(measured or Measured())
        """Of the express worker, which comes behind the others. What work costs is told by the others."""

    def measured(self, measured: Measured) -> None:
        """A worker was measured. Before the first step."""
        for worker in (*self.workers, self.express):
            worker.measured = measured

    def of_worker(self, number: int) -> WorkerCost:
        """Of the worker of a number."""
        return self.workers[number] if number < len(self.workers) else self.express

    def of(self, request: Request) -> float:
        """Seconds of a worker that a request will cost, where its steps are full."""
        tokens = len(request.source_ids)
        if not isinstance(request, Translate):
            return self.spent(tokens, request.given_tokens)
        decoding = request.decoding
        return self._cost(tokens, request.rows, decoding.max_new_tokens, 1, decoding.passes)

    def of_work(self, work: Work) -> float:
        """The same of a call."""
        if not work.beams:
            return self.spent(work.tokens, work.given)
        return self._cost(work.tokens, work.beams, work.max_new_tokens, work.contents, work.passes)

    def spent(self, tokens: float, computed_rows: float) -> float:
        """Seconds of a worker that a request has cost, whose encoder run and rows were so many.

        A target token that is given, or looked at once more, counts as a row: the same is computed for both.
        """
        return self._encode_s(tokens) + computed_rows * self._row_s()

    def service_s(self, work: Work, rows: float) -> float:
        """Seconds from the start of the longest content of a call to its end, in steps of so many rows."""
        if not work.beams:
            return self.spent(work.longest, work.given)
        turn_s = max(worker.turn_s(rows) for worker in self.workers) + work.passes * self._row_s()
        return self._encode_s(work.longest) + self._steps(work.longest, work.beams, work.max_new_tokens) * turn_s

    def express_s(self, work: Work, rows: float) -> float:
        """The same of one that goes to the express worker."""
        if not work.beams:
            return self.spent(work.longest, work.given)
        steps = self._steps(work.longest, work.beams, work.max_new_tokens)
        return self._encode_s(work.longest) + steps * self.express.turn_s(rows) + work.passes * self._row_s()

    def most_rows(self, worker: int, request: Request, left_s: float) -> float:
        """Rows of a worker's batch in which a request that begins now would take so long."""
        if not isinstance(request, Translate):
            return inf
        tokens = len(request.source_ids)
        steps = self._steps(tokens, request.rows, request.decoding.max_new_tokens)
        return self.of_worker(worker).rows_within((left_s - self._encode_s(tokens)) / steps)

    def beside_s(self, worker: int, request: Request, rows: float) -> float:
        """Seconds that a request takes which begins now beside so many rows of others in a worker's batch."""
        tokens = len(request.source_ids)
        if not isinstance(request, Translate):
            return self._encode_s(tokens)
        steps = self._steps(tokens, request.rows, request.decoding.max_new_tokens)
        return self._encode_s(tokens) + steps * self.of_worker(worker).turn_s(rows + request.rows)

    def slowdown(self, rows: float) -> float:
        """How much longer work takes in batches of so many rows than in full ones."""
        worker, rows = self.workers[0], max(rows, 1.0)
        return worker.turn_s(rows) / rows / (worker.turn_s(self.rows) / self.rows)

    def least_s(self, request: Request) -> float:
        """Seconds that a request takes in steps of its own rows alone: less there never was."""
        if not isinstance(request, Translate):
            return self._encode_s(len(request.source_ids))
        tokens = len(request.source_ids)
        step_s = min(worker.step_s(request.rows) for worker in self.workers)
        return self._encode_s(tokens) + self._steps(tokens, request.rows, request.decoding.max_new_tokens) * step_s

    def _cost(self, tokens: float, beams: int, max_new_tokens: int, contents: int, passes: int) -> float:
        steps = contents * self._steps(tokens / contents, beams, max_new_tokens)
        return self._encode_s(tokens) + (beams + passes) * steps * self._row_s()

    def _steps(self, tokens: float, beams: int, max_new_tokens: int) -> float:
        return min(max_new_tokens, max(worker.steps(tokens, beams) for worker in self.workers))

    def _row_s(self) -> float:
        """Seconds of a row in a full step."""
        return sum(worker.step_s(self.rows) for worker in self.workers) / len(self.workers) / self.rows

    def _encode_s(self, tokens: float) -> float:
        return tokens * sum(map(WorkerCost.token_s, self.workers)) / len(self.workers)
