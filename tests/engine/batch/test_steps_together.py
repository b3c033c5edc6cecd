"""engine.batch.running_batch: steps that nobody need see are made in one turn, and no others."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from prometheus_client import CollectorRegistry

from engine.batch.running_batch import TOGETHER_S, RunningBatch
from engine.errors import Late
from engine.queueing.cost import Measured, WorkerCost
from engine.request import Failed
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from tests.engine.batch.engine_batch import (
    END,
    MAX_ROWS,
    Batch,
    PrefixCache,
    RecordingCache,
    RecordingDecoder,
    Visit,
    decode_alone,
    make_visit,
    mixed_schedules,
    split,
)
from tests.fakes import CopySource

LONG = [*range(1, 9), END]
STEP_S = TOGETHER_S / 4


class Together:
    """A running batch on a clock that only steps move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, called: Callable[[], bool] = lambda: False) -> None:
        self.registry, decoder = CollectorRegistry(), RecordingDecoder(kind=RecordingCache)
        self.clock = SimpleNamespace(now=100.0)
        monkeypatch.setattr("engine.batch.running_batch.TOGETHER_S", TOGETHER_S)
        monkeypatch.setattr("engine.batch.running_batch.time", SimpleNamespace(perf_counter=lambda: self.clock.now))
        metrics = ModelMetrics(ModelFamilies(self.registry), "copy")
        cost = WorkerCost(Measured(fixed=STEP_S, each=0.0))
        self.engine: RunningBatch[CopySource] = RunningBatch(decoder, MAX_ROWS, metrics, 0, cost, called=called)
        [self.cache] = decoder.caches
        end_step = self.cache.end_step

        def take_time() -> object:
            self.clock.now += STEP_S * 1.0001  # four steps take a little longer than steps may together
            return end_step()

        monkeypatch.setattr(self.cache, "end_step", take_time)

    def admit(self, *visits: Visit) -> None:
        self.engine.admit([visit.request for visit in visits])

    def turns(self) -> list[int]:
        """Steps of each turn, until all is done."""
        made = []
        while not self.engine.idle:
            before = len(self.cache.step_rows)
            self.engine.step()
            made.append(len(self.cache.step_rows) - before)
        return made

    def sample(self, name: str) -> float | None:
        return self.registry.get_sample_value(name, {"model": "copy"})


def tokens(visit: Visit) -> list[int]:
    return list(visit.answer.hypotheses[0].token_ids)


def test_steps_are_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, visit = Together(monkeypatch), make_visit(LONG)
    batch.admit(visit)
    assert batch.turns() == [1, 3, 3, 2], "the first token is told at once, and the last one is soon"
    assert (tokens(visit), visit.answer.timings.steps) == (LONG, len(LONG))
    assert batch.sample("dragoman_steps_total") == batch.sample("dragoman_step_rows_count") == len(LONG)
    assert batch.sample("dragoman_inter_token_seconds_count") == len(LONG) - 2
    assert batch.sample("dragoman_rows_computed_total") == len(LONG)


def test_steps_of_beams_are_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a greedy row, which ends with the ninth; the search sees in one more that it is over."""
    batch, beams, greedy = Together(monkeypatch), make_visit(LONG, 2), make_visit(LONG)
    batch.admit(beams, greedy)
    assert batch.turns() == [1, 3, 3, 2, 1]
    assert tokens(beams) == tokens(greedy) == LONG
    assert (beams.answer.timings.steps, greedy.answer.timings.steps) == (len(LONG) + 1, len(LONG))


def test_a_row_that_ends_ends_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, short, long = Together(monkeypatch), make_visit([4, 5, END]), make_visit(LONG)
    batch.admit(short, long)
    assert batch.turns() == [1, 2, 3, 3]
    assert (tokens(short), tokens(long)) == ([4, 5, END], LONG)
    assert (short.answer.timings.steps, long.answer.timings.steps) == (3, len(LONG))


@pytest.mark.parametrize("num_beams", [1, 2])
def test_who_is_told_of_a_step_sees_it(monkeypatch: pytest.MonkeyPatch, num_beams: int) -> None:
    batch, visit = Together(monkeypatch), make_visit(LONG, num_beams, stream=True)
    batch.admit(visit, make_visit(LONG))
    assert set(batch.turns()) == {1}
    assert tokens(visit) == LONG


@pytest.mark.parametrize(("room", "turns"), [(1, [1] * len(LONG)), (0, [1, 3, 3, 2])])
def test_who_waits_comes_in_before_the_next_step(monkeypatch: pytest.MonkeyPatch, room: int, turns: list[int]) -> None:
    batch = Together(monkeypatch, called=lambda: True)
    batch.admit(*(make_visit(LONG) for _ in range(MAX_ROWS - room)))
    assert batch.turns() == turns


def test_no_step_ends_after_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, hurried = Together(monkeypatch), make_visit(LONG)
    hurried.request.deadline = batch.clock.now + 3.5 * STEP_S
    patient = make_visit(LONG)
    batch.admit(hurried, patient)
    assert batch.turns() == [1, 2, 3, 3]
    [answer] = hurried.events
    assert isinstance(answer, Failed) and isinstance(answer.error, Late)
    assert batch.cache.step_rows == [2] * 3 + [1] * (len(LONG) - 3)
    assert tokens(patient) == LONG


@given(mixed_schedules)
def test_nobody_gets_another_answer(schedule: list[Visit]) -> None:
    """Requests come and go between turns that last until some row ends."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("engine.batch.running_batch.TOGETHER_S", 1000.0)
        batch = Batch(kind=PrefixCache)
        batch.serve(schedule)
    for visit in split(schedule)[0]:
        assert (visit.answer.hypotheses, visit.answer.timings.steps) == decode_alone(visit.request)
    assert batch.sample("dragoman_steps_total") == len(batch.cache.step_rows)
    assert batch.sample("dragoman_rows_computed_total") == sum(batch.cache.step_rows)
