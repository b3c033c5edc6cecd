"""Runs schedules, and makes those that fail as short as they can be."""

import logging
from collections import Counter

from engine.supervision.policy import Supervision
from tests.simulation.calls import Schedule, short_schedule
from tests.simulation.world import World


def run(schedule: Schedule) -> World:
    """Raises AssertionError where something does not hold."""
    supervision = Supervision(restarts=schedule.restarts)
    sizes = schedule.workers, schedule.rows, schedule.max_waiting
    world = World(schedule.seed, *sizes, supervision=supervision, express_rows=schedule.express_rows)
    world.decoder.will_fail(schedule.faults)
    for arrival in schedule.arrivals:
        world.arrive(arrival.call(), arrival.at)
    if schedule.drain_at is not None:
        world.end(schedule.drain_at, schedule.grace_s if schedule.drains else None)
    try:
        world.run()
    except AssertionError as error:
        raise Violation(schedule, world.trace, str(error)) from error
    return world


class Violation(AssertionError):
    """Of a schedule: what happened, step by step."""

    def __init__(self, schedule: Schedule, trace: list[str], what: str) -> None:
        self.schedule, self._made_of = schedule, (schedule, trace, what)
        calls = [f"call {arrival}" for arrival in sorted(schedule.arrivals, key=lambda arrival: arrival.at)]
        server = f"workers={schedule.workers} rows={schedule.rows} waiting={schedule.max_waiting}"
        server += f" express_rows={schedule.express_rows}"
        ends = f"restarts={schedule.restarts} drain_at={schedule.drain_at} grace_s={schedule.grace_s}"
        ends += f" drains={schedule.drains}"
        told = [f"seed {schedule.seed}: {what}", f"{server} {ends}", *calls, *map(str, schedule.faults), *trace]
        super().__init__("\n".join(told))

    def __reduce__(self) -> tuple[type["Violation"], tuple[Schedule, list[str], str]]:
        """For other processes."""
        return Violation, self._made_of


def shortest(violation: Violation) -> Violation:
    """Of a smaller schedule that fails too, of which no smaller one does."""
    for schedule in violation.schedule.smaller():
        try:
            run(schedule)
        except Violation as smaller:
            return shortest(smaller)
    return violation


def run_shortened(schedule: Schedule) -> World:
    """One that fails is told as the shortest that does."""
    try:
        return run(schedule)
    except Violation as violation:
        raise shortest(violation) from None


def run_many(first: int, schedules: int) -> Counter[str]:
    """Short schedules of seeds from `first` on. Returns what failed, and what became of the calls."""
    told = Counter[str]()
    logging.disable(logging.CRITICAL)  # every failure is logged, with where it was
    try:
        for seed in range(first, first + schedules):
            world = run_shortened(short_schedule(seed))
            told.update(world.decoder.failed)
            told["express"] += len(world.expressed)
            told.update(call.refusal or ("not answered" if call.failed else "answered") for call in world.calls)
    finally:
        logging.disable(logging.NOTSET)
    return told
