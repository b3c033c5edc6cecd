"""server.traffic.arrivals: for so long, and so many at a time."""

import asyncio
from collections.abc import Coroutine
from functools import partial

import pytest

from server.traffic import arrivals
from server.traffic.arrivals import TURNS, Arrivals

LONG_S = 3600.0


def never() -> Coroutine[None, None, bool]:
    return asyncio.Event().wait()


async def there() -> int:
    """Soon."""
    await asyncio.sleep(0)
    return 7


@pytest.fixture
def no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may wait for a turn, and there are no sieges."""
    monkeypatch.setattr(arrivals, "LINE", 0)
    monkeypatch.setattr(arrivals, "SIEGE_S", 0.0)


async def begun(waiting: Coroutine[None, None, bool]) -> "asyncio.Task[bool]":
    task = asyncio.create_task(waiting)
    await asyncio.sleep(0)
    return task


async def given_up(task: "asyncio.Task[bool]") -> bool:
    """Whether it is so within some rounds of the event loop."""
    for _ in range(5 + TURNS):
        await asyncio.sleep(0)
    return task.done() and isinstance(task.exception(), TimeoutError)


async def test_what_comes_in_is_given() -> None:
    assert await Arrivals(1, 1, LONG_S).wait(there, "a") == 7


async def test_what_takes_too_long_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        await Arrivals(1, 1, 0.01).wait(never, "a")


@pytest.mark.usefixtures("no_line")
async def test_of_too_many_the_oldest_is_given_up() -> None:
    coming = Arrivals(2, 2, LONG_S)
    tasks = [await begun(coming.wait(never, "a")) for _ in range(4)]
    assert not tasks[0].done(), "all of it may be there already"
    assert [await given_up(task) for task in tasks] == [True, True, False, False]
    assert await coming.wait(there, "a") == 7
    assert [await given_up(task) for task in tasks] == [True, True, True, False]
    tasks[3].cancel()


@pytest.mark.usefixtures("no_line")
async def test_of_too_many_it_is_one_of_the_caller_who_has_the_most() -> None:
    coming = Arrivals(3, 3, LONG_S)
    tasks = [await begun(coming.wait(never, caller)) for caller in "abbcb"]
    assert [await given_up(task) for task in tasks] == [False, True, True, False, False]
    for task in (tasks[0], *tasks[3:]):
        task.cancel()


async def test_of_too_many_that_are_slow_the_oldest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "PROMPT_S", 0.0)
    coming = Arrivals(9, 1, LONG_S)
    tasks = [await begun(coming.wait(never, "a")) for _ in range(3)]
    done, [last] = await asyncio.wait(tasks, timeout=0.1)
    assert (done, last) == (set(tasks[:2]), tasks[2])
    assert all(isinstance(task.exception(), TimeoutError) for task in done)
    last.cancel()


@pytest.mark.usefixtures("no_line")
async def test_who_is_on_his_way_out_is_not_given_up_again() -> None:
    leave = asyncio.Event()

    async def slow_to_leave() -> bool:
        try:
            return await never()
        finally:
            await leave.wait()

    coming = Arrivals(1, 1, 0.01)
    leaving = asyncio.create_task(coming.wait(slow_to_leave, "a"))
    await asyncio.sleep(0.05)  # its time is over, and it has not left
    assert await coming.wait(there, "a") == 7
    leave.set()
    with pytest.raises(TimeoutError):
        await leaving


async def test_who_is_done_takes_no_place() -> None:
    coming = Arrivals(1, 1, LONG_S)
    for _ in range(3):
        leaving = await begun(coming.wait(never, "a"))
        leaving.cancel()
        await asyncio.wait([leaving])
        assert leaving.cancelled()
        assert await coming.wait(there, "a") == 7


async def turns() -> None:
    """More of them than anybody gets."""
    for _ in range(5 + TURNS):
        await asyncio.sleep(0)


async def let(leave: asyncio.Event) -> bool:
    return await leave.wait()


async def test_one_more_of_a_caller_waits_for_its_turn_before_one_is_given_up() -> None:
    coming, leave = Arrivals(2, 2, LONG_S), asyncio.Event()
    tasks = [await begun(coming.wait(partial(let, leave), "a")) for _ in range(6)]
    await turns()
    assert not any(task.done() for task in tasks)
    leave.set()
    assert await asyncio.gather(*tasks) == [True] * 6


async def test_one_more_of_another_caller_does_not_wait() -> None:
    coming = Arrivals(2, 2, LONG_S)
    tasks = [await begun(coming.wait(never, "a")) for _ in range(2)]
    assert await coming.wait(there, "b") == 7
    assert [await given_up(task) for task in tasks] == [True, False]
    tasks[1].cancel()


async def test_who_has_waited_for_a_moment_is_let_in_for_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "PROMPT_S", 0.0)
    coming = Arrivals(1, 9, LONG_S)
    oldest = await begun(coming.wait(never, "a"))
    assert await coming.wait(there, "a") == 7
    assert await given_up(oldest)


async def test_who_leaves_the_line_is_in_nobodys_way() -> None:
    coming, leave = Arrivals(1, 1, LONG_S), asyncio.Event()
    first, second, third = [await begun(coming.wait(partial(let, leave), "a")) for _ in range(3)]
    await turns()
    second.cancel()
    leave.set()
    assert all(await asyncio.gather(first, third))
    assert second.cancelled()


@pytest.mark.usefixtures("no_line")
async def test_while_nothing_slow_becomes_whole_less_may_come_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "SIEGE_S", LONG_S)
    coming = Arrivals(10, 10, LONG_S)
    tasks = [await begun(coming.wait(never, "a")) for _ in range(20)]
    await turns()
    assert sum(not task.done() for task in tasks) == round(10 * arrivals.BESIEGED)
    assert await coming.wait(there, "b") == 7
    monkeypatch.setattr(arrivals, "SIEGE_S", 0.0)  # nobody was given up for so long
    tasks += [await begun(coming.wait(never, "a")) for _ in range(20)]
    await turns()
    assert sum(not task.done() for task in tasks) == 10
    for task in tasks:
        task.cancel()


@pytest.mark.usefixtures("no_line")
async def test_where_slow_ones_become_whole_as_many_may_come_in_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "SIEGE_S", LONG_S)
    monkeypatch.setattr(arrivals, "PROMPT_S", 0.0)
    coming, leave = Arrivals(10, 10, LONG_S), asyncio.Event()
    slow = [await begun(coming.wait(partial(let, leave), "a")) for _ in range(5)]
    await asyncio.sleep(0.01)
    leave.set()
    assert await asyncio.gather(*slow) == [True] * 5
    monkeypatch.setattr(arrivals, "PROMPT_S", LONG_S)
    tasks = [await begun(coming.wait(never, "a")) for _ in range(15)]
    await turns()
    assert sum(not task.done() for task in tasks) == 10
    for task in tasks:
        task.cancel()
