"""Any schedule of calls and failures: everybody is answered once, rows are conserved, and nobody is starved."""

import pickle
from dataclasses import replace
from unittest.mock import patch

import pytest

from engine.batch.answers import Answers
from engine.batch.running_batch import RunningBatch
from engine.runner import Runner
from server.admission.permits import Admission
from server.grpc.health import Health
from tests.simulation.calls import Arrival, Call, Schedule, long_schedule
from tests.simulation.machine import Fault
from tests.simulation.schedules import Violation, run, run_many, run_shortened, shortest
from tests.simulation.world import World

PARTS, SCHEDULES = 10, 1000
"""In the suite, and in each part of it. `python -m tests.simulation` makes as many as wanted."""


@pytest.mark.parametrize("part", range(PARTS))
def test_everybody_is_answered_once_whatever_comes_and_whatever_fails(part: int) -> None:
    told = run_many(part * SCHEDULES, SCHEDULES)
    kinds = ("crash", "hang", "memory", "poison", "answered", "not answered", "express")
    refusals = ("OVERLOADED", "WOULD_BE_LATE", "DRAINING", "ENGINE_STOPPED")
    assert all(told[name] for name in (*kinds, *refusals)), told


@pytest.mark.parametrize("first", [0, 9])
def test_everybody_is_answered_once_where_texts_are_long_and_beams_wide(first: int) -> None:
    worlds = [run_shortened(long_schedule(seed)) for seed in range(first, first + 9)]
    assert any(world.expressed for world in worlds)
    calls = [call for world in worlds for call in world.calls]
    assert any(call.refusal == "WOULD_BE_LATE" for call in calls)
    assert any(call.in_time for call in calls)


@pytest.mark.parametrize(("express_rows", "most_s"), [(0, 2.0), (4, 0.1)])
def test_a_caller_within_its_share_does_not_wait_for_one_that_sends_anything(express_rows: int, most_s: float) -> None:
    world = World(1, express_rows=express_rows)
    for _ in range(10):
        world.arrive(Call([30] * 4, 16, endless=True, caller="greedy one", most=200), 0.0)
    for number in range(50):
        world.arrive(Call([10], caller="modest one"), 0.1 * number)
    world.run()
    modest = sorted(call.ended - call.arrived for call in world.calls if call.caller == "modest one" and call.ended)
    assert len(modest) == 50
    assert modest[-1] < most_s, modest  # one search of the greedy one takes 2.7 s, one of its steps 7 ms
    assert bool(world.expressed) == bool(express_rows)
    assert {call.caller for call in world.expressed} <= {"modest one"}


def test_each_caller_has_its_share_of_the_rows_and_what_may_wait_a_quarter_of_that() -> None:
    world, each = World(1, rows=4, max_waiting=10**6), 40
    flows = [(caller, bulk) for caller in "abc" for bulk in (False, True)]
    for caller, bulk in flows * each:
        world.arrive(Call([6], caller=caller, bulk=bulk), 0.0)
    world.run()
    ended = {
        flow: sorted(call.ended or 0 for call in world.calls if (call.caller, call.bulk) == flow) for flow in flows
    }
    first = min(ends[-1] for ends in ended.values())
    answered = {flow: sum(end <= first for end in ends) for flow, ends in ended.items()}
    assert all(answered[flow] > each * (0.15 if flow[1] else 0.85) for flow in flows), answered


SCHEDULE = Schedule(
    0,
    tuple(Arrival(0.002 * number, (5, 3), beams=1 + number % 2, stream=number % 3 == 0) for number in range(6)),
    (Fault(0.004, "crash"), Fault(0.01, "hang")),
    workers=2,
)


def test_a_violation_is_told_as_the_shortest_schedule_that_has_it() -> None:
    run(SCHEDULE)
    with patch.object(Answers, "give", lambda answers, request, event: answers.forget(request)):
        with pytest.raises(Violation) as raised:
            run(SCHEDULE)
        violation = shortest(raised.value)
    assert "a request is lost" in str(violation)
    assert len(violation.schedule.arrivals) == 1
    assert not violation.schedule.faults


@pytest.mark.parametrize("workers", [1, 2])
def test_whoever_waits_when_it_is_closed_at_once_is_told(workers: int) -> None:
    closed = replace(SCHEDULE, faults=(), workers=workers, rows=2, drain_at=0.006, drains=False)
    assert any(call.failed for call in run(closed).calls)
    with patch.object(Runner, "_fail_waiting", lambda *_: None), pytest.raises(Violation):
        run(closed)


async def end_at_once(server: object, health: Health, *_: object) -> None:
    health.end()


def test_whoever_waits_when_it_drains_is_told_by_the_end_of_the_grace_period() -> None:
    arrivals = (*SCHEDULE.arrivals, Arrival(0, (5,), endless=True, most=400), Arrival(0.01, (5,)))
    drained = replace(SCHEDULE, arrivals=arrivals, faults=(), drain_at=0.006, grace_s=0.05)
    calls = run(drained).calls
    assert [call.refusal for call in calls].count("DRAINING") == 3
    [told] = [call for call in calls if call.endless]
    assert told.failed and told.ended is not None
    assert 0.05 <= told.ended - calls[0].arrived - 0.006 < 0.07
    with patch("tests.simulation.draining.drain", end_at_once), pytest.raises(Violation, match="somebody waits"):
        run(drained)


def test_who_reads_slowly_has_all_of_it_later_or_leaves_before() -> None:
    arrivals = (Arrival(0, (5,), stream=True), Arrival(0, (5,), stream=True, reads_s=0.5))
    prompt, slow = run(Schedule(0, arrivals)).calls
    assert prompt.ended is not None and slow.ended is not None
    assert slow.ended > prompt.ended + 1
    leaving = replace(arrivals[1], leaves_after_s=0.7)
    assert run(Schedule(0, (leaving,))).calls[0].failed


def test_a_violation_comes_from_another_process_as_it_was() -> None:
    violation = Violation(SCHEDULE, ["something"], "wrong")
    again = pickle.loads(pickle.dumps(violation))
    assert (str(again), again.schedule) == (str(violation), SCHEDULE)


LEFT_BEHIND = Schedule(
    293, (Arrival(0.0073, (4, 2, 5)),), (Fault(0.0067, "hang"), Fault(0.0068, "hang")), rows=2, restarts=1
)
SUCCEEDED = Schedule(
    108069,
    (Arrival(0.01646, (2, 6)), Arrival(0.01722, (7,)), Arrival(11.52271, (7,))),
    (Fault(0.02097, "hang"), Fault(0.02151, "hang"), Fault(0.04071, "hang")),
    rows=6,
)


@pytest.mark.parametrize("schedule", [LEFT_BEHIND, SUCCEEDED])
@pytest.mark.parametrize("seed", range(8))
def test_a_worker_that_comes_back_does_not_answer_what_its_successor_is_to_try(schedule: Schedule, seed: int) -> None:
    run(replace(schedule, seed=seed))


LEAVING = replace(
    SCHEDULE,
    arrivals=tuple(
        replace(arrival, at=0.0, leaves_after_s=0.005 * (number % 2))
        for number, arrival in enumerate(SCHEDULE.arrivals)
    ),
    rows=2,
)


@pytest.mark.parametrize(
    ("where", "what", "violation"),
    [
        (RunningBatch, "_give_back", "rows free"),
        (RunningBatch, "drop_cancelled", "somebody who has left"),
        (Admission, "leave", "permit"),
        (Runner, "_withdraw", "nobody waits for"),
    ],
)
def test_what_is_not_done_is_a_violation(where: type, what: str, violation: str) -> None:
    run(LEAVING)
    with patch.object(where, what, lambda *_: None), pytest.raises(Violation, match=violation):
        run(LEAVING)
