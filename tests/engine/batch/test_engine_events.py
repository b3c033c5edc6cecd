"""engine.batch.running_batch, one thing at a time: leaving, failing, memory, and what the clock says."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TypeVar

import pytest

from engine.batch.running_batch import RunningBatch
from engine.decoder import S
from engine.errors import OutOfMemory
from engine.request import Encode, Encoded, Event, Failed, Request
from models.decoding import Decoding
from tests.engine.batch.engine_batch import END, MAX_ROWS, Batch, PrefixCache, make_visit
from tests.fakes import CopySource

T = TypeVar("T")


def test_cancelled_requests_leave_before_the_next_step() -> None:
    batch = Batch()
    stays, leaves = make_visit([4, 5, 6, END]), make_visit([7, 8, 9, END], num_beams=3)
    for guest in (stays, leaves):
        batch.engine.admit([guest.request])
    batch.step()
    batch.step()
    assert batch.engine.free_rows == MAX_ROWS - 4
    leaves.request.cancel()
    batch.step()
    assert batch.cache.step_rows == [2, 4, 1]
    assert batch.cache.live == batch.rows_live == 1
    assert batch.engine.free_rows == MAX_ROWS - 1
    assert batch.sample("dragoman_cancellations_total") == 1
    batch.step()
    assert stays.answer.hypotheses[0].token_ids == (4, 5, 6, END)
    assert leaves.events == []


def test_rows_of_the_last_request_are_free_once_it_is_cancelled() -> None:
    batch = Batch()
    only = make_visit([4, 5, 6, END])
    batch.engine.admit([only.request])
    batch.step()
    assert batch.rows_live == 1
    only.request.cancel()
    batch.step()
    assert batch.cache.step_rows == [1]
    assert batch.engine.idle
    assert batch.engine.free_rows == MAX_ROWS
    assert batch.cache.live == batch.rows_live == 0


def test_one_that_leaves_before_its_first_step_has_no_first_token() -> None:
    batch, (leaves, stays) = Batch(), [make_visit([4, 5, END]), make_visit([7, END])]
    batch.engine.admit([leaves.request])
    leaves.request.cancel()
    batch.step()
    assert batch.engine.idle
    batch.engine.admit([stays.request])
    batch.step()
    assert batch.sample("dragoman_time_to_first_token_seconds_count") == 1


def test_a_request_for_several_hypotheses_apart_has_one_first_token() -> None:
    batch, alternatives = Batch(PrefixCache), Decoding(return_alternatives=True, num_return_sequences=3)
    visit = make_visit([4, 5, END])
    visit.request.decoding, visit.request.rows = alternatives, alternatives.rows
    batch.serve([visit])
    assert len(visit.answer.hypotheses) == 3
    assert batch.sample("dragoman_time_to_first_token_seconds_count") == 1


def test_an_idle_engine_makes_no_step() -> None:
    batch = Batch()
    batch.step()
    assert batch.cache.step_rows == []
    assert batch.sample("dragoman_steps_total") == batch.rows_live == 0


def test_encode_needs_no_row() -> None:
    batch = Batch()
    batch.engine.admit([make_visit([4, END], num_beams=MAX_ROWS).request])
    assert batch.engine.free_rows == 0
    answer = encode(batch.engine, (3, 5, END))
    assert answer.vectors.data.tolist() == CopySource((3, 5, END)).hidden().mean(axis=0).tolist()
    assert (answer.timings.decode, answer.timings.steps) == (0.0, 0)
    assert batch.cache.live == 1
    assert batch.sample("dragoman_source_tokens_total") == 3


def encode(engine: RunningBatch[S], source_ids: tuple[int, ...]) -> Encoded:
    events: list[Event] = []
    engine.admit([Encode(source_ids, events.append)])
    [answer] = events
    assert isinstance(answer, Encoded)
    return answer


def test_fail_answers_all_that_run() -> None:
    batch = Batch()
    guests = [make_visit([4, 5, END]), make_visit([6, 7, END], num_beams=4)]
    for guest in guests:
        batch.engine.admit([guest.request])
    batch.step()
    error = RuntimeError("broken")
    batch.engine.fail(error)
    assert [guest.events for guest in guests] == [[Failed(error)], [Failed(error)]]
    assert batch.engine.idle
    assert batch.rows_live == 0


def test_events_are_delivered_while_the_next_step_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch()
    ends, stays = make_visit([4, END]), make_visit([5, 6, 7, END])
    batch.engine.admit([ends.request, stays.request])
    batch.engine.step()
    batch.engine.step()
    assert not ends.answered
    answered: list[bool] = []
    monkeypatch.setattr(batch.cache, "end_step", after(lambda: answered.append(ends.answered), batch.cache.end_step))
    batch.engine.step()
    assert answered == [True]
    batch.engine.step()
    assert stays.answered  # no step comes that it could wait for


def test_requests_without_memory_are_refused_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch()
    encode_all = batch.decoder.encode

    def encode_short(sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]]) -> list[CopySource]:
        longest = max(map(len, sources))
        if longest > 3:
            raise OutOfMemory(longest)
        return encode_all(sources, named)

    monkeypatch.setattr(batch.decoder, "encode", encode_short)
    guests = [
        make_visit([4, END]),
        make_visit([5, 6, 7, 8, END], num_beams=2),
        make_visit([9, END]),
        make_visit([5, 6, END]),
    ]
    batch.engine.admit([guest.request for guest in guests])
    long = guests.pop(1)
    [refusal] = long.events
    assert isinstance(refusal, Failed)
    assert isinstance(refusal.error, OutOfMemory)
    assert refusal.error.source_tokens == 5
    assert batch.engine.free_rows == MAX_ROWS - len(guests)
    for _ in range(3):
        batch.step()
    for guest in guests:
        assert guest.answer.hypotheses[0].token_ids == guest.request.source_ids
    assert batch.engine.free_rows == MAX_ROWS


def test_timings_are_of_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder run takes 2 s and a step 3 s of a clock that stands still in between."""
    clock = standing_clock(monkeypatch)
    batch = Batch()
    monkeypatch.setattr(batch.decoder, "encode", taking(2.0, clock, batch.decoder.encode))
    monkeypatch.setattr(batch.cache, "end_step", taking(3.0, clock, batch.cache.end_step))
    first, second = make_visit([4, 5, 6, END]), make_visit([7, END])
    admit(batch.engine, first.request, arrived=99.0)  # runs from 102
    batch.step()
    admit(batch.engine, second.request, arrived=100.5)  # runs from 107
    for _ in range(3):
        batch.step()
    timings = first.answer.timings
    assert (timings.queue, timings.encode, timings.decode, timings.steps) == (1.0, 2.0, 14.0, 4)
    assert timings.total == 17.0
    timings = second.answer.timings
    assert (timings.queue, timings.encode, timings.decode, timings.steps) == (4.5, 2.0, 6.0, 2)
    encode(batch.engine, (3, END))
    seconds = {part: batch.sample("dragoman_step_seconds_total", part=part) for part in ("model", "engine")}
    assert seconds == {"model": 12.0, "engine": 0.0}
    assert batch.sample("dragoman_inter_token_seconds_sum") == 8.0
    assert batch.sample("dragoman_time_to_first_token_seconds_sum") == (105.0 - 99.0) + (110.0 - 100.5)
    assert batch.sample("dragoman_phase_duration_seconds_sum", phase="encode") == 3 * 2.0
    assert batch.sample("dragoman_phase_duration_seconds_sum", phase="decode") == 14.0 + 6.0


def test_rows_that_waited_for_an_encoder_run_get_as_much_time_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder run takes 7 s and a step 3 s."""
    clock = standing_clock(monkeypatch)
    batch = Batch()
    monkeypatch.setattr(batch.decoder, "encode", taking(7.0, clock, batch.decoder.encode))
    monkeypatch.setattr(batch.cache, "end_step", taking(3.0, clock, batch.cache.end_step))
    batch.engine.admit([make_visit([4, 5, 6, 7, 8, END]).request])
    assert batch.engine.may_encode, "nobody had to wait"
    batch.step()
    encode(batch.engine, (3, END))
    waits = []
    for _ in range(3):
        waits.append(not batch.engine.may_encode)
        batch.step()
    assert waits == [True, True, True]
    assert batch.engine.may_encode
    encode(batch.engine, (3, END))
    batch.step()
    batch.step()
    assert batch.engine.idle
    assert batch.engine.may_encode, "nobody waits any more"


def standing_clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    for module in ("running_batch", "encoder_runs"):
        monkeypatch.setattr(f"engine.batch.{module}.time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def taking(seconds: float, clock: SimpleNamespace, call: Callable[..., T]) -> Callable[..., T]:
    def wait() -> None:
        clock.now += seconds

    return after(wait, call)


def after(first: Callable[[], None], call: Callable[..., T]) -> Callable[..., T]:
    def both(*arguments: object) -> T:
        first()
        return call(*arguments)

    return both


def admit(engine: RunningBatch[S], request: Request, arrived: float) -> None:
    request.arrived = arrived
    engine.admit([request])
