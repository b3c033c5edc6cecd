"""Any schedule of calls: everybody is answered once, rows are conserved, and nobody is starved."""

import random

import pytest

from tests.simulation.world import Call, World, told

SCHEDULES = 60
"""In the suite. `python -m tests.simulation` makes as many as wanted."""


def some_call(chance: random.Random) -> Call:
    beams = chance.choice([1, 1, 1, 2, 4, 8, 16])
    return Call(
        [chance.randint(2, 40) for _ in range(chance.choice([1, 1, 2, 4, 12]))],
        beams,
        most=chance.choice([8, 60, 200]),
        endless=chance.random() < 0.1,
        caller=chance.choice("abcd"),
        bulk=chance.random() < 0.3,
        deadline_s=chance.choice([None, None, 0.02, 0.3, 1.0]),
        leaves_after_s=chance.choice([None, None, 0.1, 0.5]),
    )


def run_schedule(seed: int) -> World:
    """Some calls in some seconds."""
    world = World(seed, workers=1 + seed % 3, max_waiting=world_waiting(seed))
    for _ in range(40):
        world.arrive(some_call(world.chance), world.chance.uniform(0, 1.5))
    with told(seed):
        world.run()
    return world


def world_waiting(seed: int) -> int:
    return (12, 40, 1024)[seed // 3 % 3]


@pytest.mark.parametrize("first", range(0, SCHEDULES, 20))
def test_everybody_is_answered_once_and_rows_are_conserved(first: int) -> None:
    calls = [call for seed in range(first, first + 20) for call in run_schedule(seed).calls]
    assert any(call.refusal == "WOULD_BE_LATE" for call in calls)
    assert any(call.in_time for call in calls)


def test_a_caller_within_its_share_does_not_wait_for_one_that_sends_anything() -> None:
    world = World(1)
    for _ in range(40):
        world.arrive(Call([30] * 4, 16, endless=True, caller="greedy one", most=200), 0.0)
    for number in range(50):
        world.arrive(Call([10], caller="modest one"), 0.1 * number)
    world.run()
    modest = sorted(call.ended - call.arrived for call in world.calls if call.caller == "modest one" and call.ended)
    assert len(modest) == 50
    assert modest[-1] < 1.5, modest
