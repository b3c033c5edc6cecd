"""server.admission.shedding: most of what would be refused is refused before it is read, and others do not notice.

Tests are asynchronous for a context of their own: the calls that they begin are nobody's afterwards.
"""

from collections.abc import Callable
from typing import Any

import pytest

from server.admission.accounts import SWEEP_FROM
from server.admission.shedding import HOLD_S, MORE, TIMES, WINDOW_S, Shedding
from server.errors import Draining, Overloaded, ServerError, TooManyCalls, WouldBeLate
from server.telemetry.calls import Call, begin

RATE, CAPACITY = 500, 50
"""Calls a second that come, and that are taken."""


class World:
    """A clock and a chance that tests set, and calls of callers."""

    def __init__(self) -> None:
        self.now, self.draw = 100.0, 0.0
        self.shedding = Shedding(lambda: self.now, lambda: self.draw)

    def call(
        self,
        caller: str = "a",
        left_s: float | None = 1.0,
        error: ServerError | None = None,
        method: str = "Translate",
        bulk: bool = False,
        document: bool = False,
    ) -> str:
        """What becomes of a call: "shed", "refused" by the error, if it is looked at, or "taken"."""
        call = Call(method, caller=caller, deadline=None if left_s is None else self.now + left_s, bulk=bulk)
        begin(call)
        try:
            with self.shedding.look():
                call.bulk = bulk or document
                if error is not None:
                    raise error
        except TooManyCalls:
            return "shed"
        except ServerError:
            return "refused"
        return "taken"

    def overload(self, seconds: float, error: Callable[[], ServerError], **of: Any) -> list[str]:
        """Calls at RATE, of which admission would take CAPACITY; chance goes evenly through all that there is. `of`:
        more about each.
        """
        ends = []
        for number in range(round(seconds * RATE)):
            self.now += 1 / RATE
            self.draw = (number * 0.618034) % 1
            ends.append(self.call(**of, error=None if number % (RATE // CAPACITY) == 0 else error()))
        return ends


def late() -> ServerError:
    return WouldBeLate(2.0, 1.0, 0.4)


def full() -> ServerError:
    return Overloaded(1030, 1024, 0.4)


@pytest.mark.parametrize("error", [late, full])
async def test_a_caller_whose_calls_are_mostly_refused_has_few_of_them_looked_at(
    error: Callable[[], ServerError],
) -> None:
    world = World()
    world.overload(3 * WINDOW_S, error)
    ends = world.overload(10.0, error)
    looked_at, taken = len(ends) - ends.count("shed"), ends.count("taken")
    assert taken > 0
    assert looked_at <= TIMES * taken + MORE * 10.0 / WINDOW_S + 0.05 * len(ends)
    assert ends.count("shed") > len(ends) / 2


async def test_it_is_told_how_many_come_and_are_taken_and_when_to_come_again() -> None:
    world = World()
    world.overload(3 * WINDOW_S, late)
    world.draw = 0.0
    begin(Call("Translate", caller="a", deadline=world.now + 1.0))
    with pytest.raises(TooManyCalls) as caught, world.shedding.look():
        pass
    error = caught.value
    assert (error.status, error.reason, error.retry_after_s) == ("UNAVAILABLE", "TOO_MANY_CALLS", 0.4)
    assert int(error.metadata["calls_per_s"]) == pytest.approx(RATE, rel=0.1)
    assert int(error.metadata["taken_per_s"]) < RATE / 5


async def test_who_is_refused_now_and_then_is_always_looked_at() -> None:
    world = World()
    for number in range(1000):
        world.now += 0.01
        assert world.call(error=late() if number % 3 == 0 else None) != "shed"


async def test_other_callers_do_not_notice() -> None:
    world = World()
    for _ in range(20):
        world.overload(0.1, late)
        world.draw = 0.0
        assert world.call("b") == "taken"


async def test_other_methods_and_urgent_calls_of_the_same_caller_do_not_notice() -> None:
    world = World()
    for _ in range(20):
        world.overload(0.1, late, bulk=True)
        world.draw = 0.0
        assert world.call() == "taken"
        assert world.call(method="Encode", bulk=True) == "taken"
    assert world.call(bulk=True) == "shed"


async def test_documents_are_counted_as_they_come_and_not_as_the_bulk_that_they_become() -> None:
    world = World()
    ends = world.overload(3 * WINDOW_S, late, method="TranslateDocument", document=True)
    assert ends.count("shed") > len(ends) / 2


async def test_who_calls_less_than_ten_times_a_second_is_always_looked_at() -> None:
    world = World()
    world.draw = 0.0
    for number in range(100):
        world.now += 1.01 / MORE
        assert world.call(error=None if number % 9 == 8 else late()) != "shed"


async def test_as_soon_as_nobody_is_refused_all_are_looked_at() -> None:
    world = World()
    world.overload(3 * WINDOW_S, late)
    world.now += HOLD_S + 0.001
    world.draw = 0.0
    assert [world.call() for _ in range(100)] == ["taken"] * 100


async def test_who_has_more_time_than_those_who_would_be_late_is_looked_at() -> None:
    world = World()
    world.overload(3 * WINDOW_S, late)
    world.draw = 0.0
    assert world.call(left_s=1.0) == "shed"
    assert (world.call(left_s=1.2), world.call(left_s=None)) == ("taken", "taken")


async def test_where_the_queue_is_full_more_time_is_of_no_use() -> None:
    world = World()
    world.overload(3 * WINDOW_S, full)
    world.draw = 0.0
    assert (world.call(left_s=10.0), world.call(left_s=None)) == ("shed", "shed")


@pytest.mark.parametrize("error", [Draining, lambda: WouldBeLate(0.0, -0.1)])
async def test_other_errors_and_work_that_was_begun_shed_nothing(error: Callable[[], ServerError]) -> None:
    world = World()
    assert "shed" not in world.overload(3 * WINDOW_S, error)


async def test_accounts_of_those_who_are_no_longer_refused_are_forgotten() -> None:
    world = World()
    for number in range(5 * SWEEP_FROM):
        world.now += 2 * WINDOW_S / SWEEP_FROM
        world.call(str(number), error=late())
    assert len(world.shedding._accounts) <= SWEEP_FROM
