"""Goodput of a simulated server: what share of its capacity are answers in time, when more is asked of it."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.simulation.calls import Call
from tests.simulation.machine import Speed
from tests.simulation.world import World

DEADLINE_S = 1.0
TEXTS = 4
"""Of each call."""
MEAN_TOKENS = 22.5
"""Of a text: from 5 to 40."""


@dataclass(frozen=True)
class Goodput:
    """Of one load."""

    load: float
    share: float
    """Of the capacity, in tokens of calls that were answered in time: not in calls, as short ones are let in sooner."""
    lost_rows: float
    """Share of all rows that were computed for calls without an answer."""


def arrivals(world: World, calls_a_second: float, seconds: float, deadline_s: float | None) -> None:
    """Calls that come at random, as many a second as told."""
    at = 0.0
    while (at := at + world.chance.expovariate(calls_a_second)) < seconds:
        lengths = [world.chance.randint(5, 40) for _ in range(TEXTS)]
        world.arrive(Call(lengths, caller=world.chance.choice("abcd"), deadline_s=deadline_s), at)


@dataclass(frozen=True)
class Machine:
    """A simulated server."""

    rows: int
    """Of each of its two workers."""
    speed: Speed


FAST = Machine(16, Speed())
SLOW = Machine(64, Speed(step=0.002, row=0.0006, token=0.0003))
"""In full batches most answers take longer than the deadline."""


def capacity(machine: Machine, seed: int, seconds: float) -> float:
    """Tokens a second of a server that is never idle."""
    world = World(seed, rows=machine.rows, max_waiting=10**6, speed=machine.speed)
    arrivals(world, 1000.0, seconds / 10, None)
    began = world.clock.now
    world.run()
    end = began + (world.clock.now - began) / 2
    return tokens(call for call in world.calls if call.ended and call.ended <= end) / (end - began)


def tokens(calls: Iterable[Call]) -> int:
    """Source tokens of calls; the decoder copies."""
    return sum(sum(call.lengths) for call in calls)


def goodput(machine: Machine, seed: int, load: float, seconds: float) -> Goodput:
    """Of a load that is so many times the capacity."""
    most = capacity(machine, seed, seconds)
    world = World(seed, rows=machine.rows, speed=machine.speed)
    end = world.clock.now + seconds
    arrivals(world, load * most / (TEXTS * MEAN_TOKENS), seconds, DEADLINE_S)
    world.run()
    good = tokens(call for call in world.calls if not call.refusal and call.in_time and (call.ended or end) < end)
    rows = {True: 0.0, False: 0.0}
    for call in world.calls:
        if call.requests:
            rows[call.in_time] += world.rows_of(call)
    return Goodput(load, good / seconds / most, rows[False] / max(sum(rows.values()), 1))
