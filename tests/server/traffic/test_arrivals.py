"""server.traffic.arrivals: for so long, and so many at a time."""

import asyncio
from collections.abc import Coroutine
from functools import partial

import pytest

from server.traffic import arrivals
from server.traffic.arrivals import Arrivals

LONG_S = 3600.0


def never() -> Coroutine[None, None, bool]:
    return asyncio.Event().wait()


async def there() -> int:
    """Soon."""
    await asyncio.sleep(0)
    return 7


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is one, and everybody has been heard."""
    monkeypatch.setattr(arrivals, "CROWD", 0)
    monkeypatch.setattr(arrivals, "HEARD_S", 0.0)


def at_most(most: int, slow: int | None = None, waiting: int = 100, timeout_s: float = LONG_S) -> Arrivals:
    return Arrivals(most, most if slow is None else slow, waiting, timeout_s)


async def begun(waiting: Coroutine[None, None, bool]) -> "asyncio.Task[bool]":
    task = asyncio.create_task(waiting)
    await turns()
    return task


async def turns() -> None:
    """Enough of them for whatever can happen at once."""
    for _ in range(20):
        await asyncio.sleep(0)


async def given_up(*tasks: "asyncio.Task[bool]") -> list[bool]:
    """Whether each is so by now."""
    await turns()
    return [task.done() and isinstance(task.exception(), TimeoutError) for task in tasks]


async def let(leave: asyncio.Event) -> bool:
    return await leave.wait()


async def test_what_comes_in_is_given() -> None:
    assert await at_most(1).wait(there, "a", "x") == 7


async def test_what_takes_too_long_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        await at_most(1, timeout_s=0.01).wait(never, "a", "x")


@pytest.mark.usefixtures("crowd")
async def test_of_too_many_the_oldest_is_given_up() -> None:
    coming = at_most(2)
    tasks = [await begun(coming.wait(never, "a", connection)) for connection in "wxyz"]
    assert await given_up(*tasks) == [True, True, False, False]
    assert await coming.wait(there, "a", "v") == 7
    assert await given_up(*tasks) == [True, True, True, False]
    tasks[3].cancel()


@pytest.mark.usefixtures("crowd")
async def test_of_too_many_it_is_one_of_the_caller_who_has_the_most() -> None:
    coming = at_most(3)
    tasks = [await begun(coming.wait(never, caller, f"{number}")) for number, caller in enumerate("abbcb")]
    assert await given_up(*tasks) == [False, True, True, False, False]
    for task in (tasks[0], *tasks[3:]):
        task.cancel()


async def test_of_too_many_that_are_slow_the_oldest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "PROMPT_S", 0.0)
    monkeypatch.setattr(arrivals, "HEARD_S", 0.0)
    coming = at_most(9, slow=1)
    tasks = [await begun(coming.wait(never, "a", "x")) for _ in range(3)]
    done, [last] = await asyncio.wait(tasks, timeout=0.1)
    assert (done, last) == (set(tasks[:2]), tasks[2])
    assert all(isinstance(task.exception(), TimeoutError) for task in done)
    last.cancel()


async def test_a_place_is_left_when_the_memory_is_free() -> None:
    """Not when one is given up: what has come of it is there until its call has ended."""
    coming, end = at_most(1, timeout_s=0.01), asyncio.Event()
    holder = asyncio.create_task(let(end))
    with pytest.raises(TimeoutError):
        await coming.wait(never, "a", "x", holder)
    with pytest.raises(TimeoutError):
        await coming.wait(there, "b", "x")
    end.set()
    await turns()
    assert await coming.wait(there, "b", "x") == 7


async def test_what_is_whole_leaves_its_place_before_its_call_ends() -> None:
    coming = at_most(1)
    holder = asyncio.create_task(never())
    assert [await coming.wait(there, "a", "x", holder) for _ in range(2)] == [7, 7]
    holder.cancel()


async def test_who_is_done_takes_no_place() -> None:
    coming = at_most(1)
    for _ in range(3):
        leaving = await begun(coming.wait(never, "a", "x"))
        leaving.cancel()
        await asyncio.wait([leaving])
        assert leaving.cancelled()
        assert await coming.wait(there, "a", "x") == 7


async def test_one_more_of_a_caller_waits_for_its_turn_before_one_is_given_up() -> None:
    coming, leave = at_most(2), asyncio.Event()
    tasks = [await begun(coming.wait(partial(let, leave), "a", "x")) for _ in range(6)]
    assert not any(task.done() for task in tasks)
    leave.set()
    assert await asyncio.gather(*tasks) == [True] * 6


async def test_one_more_of_another_caller_does_not_wait() -> None:
    coming = at_most(2)
    tasks = [await begun(coming.wait(never, "a", "x")) for _ in range(2)]
    assert await coming.wait(there, "b", "x") == 7
    assert await given_up(*tasks) == [True, False]
    tasks[1].cancel()


async def test_who_has_the_fewest_is_first_in_the_line() -> None:
    coming, ended = at_most(2), list[str]()

    async def tell(caller: str) -> None:
        await coming.wait(there, caller, "x")
        ended.append(caller)

    holding = [await begun(coming.wait(never, "a", "x")) for _ in range(2)]
    waiting = [asyncio.create_task(tell(caller)) for caller in "aab"]
    await asyncio.gather(*waiting)
    assert ended == ["b", "a", "a"]
    for task in holding:
        task.cancel()


async def test_who_has_waited_for_a_moment_is_let_in_for_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "PROMPT_S", 0.0)
    monkeypatch.setattr(arrivals, "HEARD_S", 0.01)
    coming = at_most(1, slow=9)
    oldest = await begun(coming.wait(never, "a", "x"))
    assert await coming.wait(there, "a", "x") == 7
    assert await given_up(oldest) == [True]


async def test_in_a_crowd_everybody_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "CROWD", 2)
    monkeypatch.setattr(arrivals, "HEARD_S", 0.2)
    coming = at_most(1)
    tasks = [await begun(coming.wait(never, "a", "x")) for _ in range(5)]
    assert await given_up(*tasks) == [False] * 5
    ended = list[asyncio.Task[bool]]()
    for task in tasks:
        task.add_done_callback(ended.append)
    await asyncio.wait(tasks[:4])
    assert ended[:4] == tasks[:4], "one after the other, each when it has been heard"
    assert await given_up(*tasks) == [True, True, True, True, False]
    tasks[4].cancel()


async def test_good_connections_are_first_and_bad_ones_are_given_up_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "CROWD", 2)
    coming, ended = at_most(2), list[str]()

    async def tell(connection: str) -> None:
        await coming.wait(there, "a", connection)
        ended.append(connection)

    await coming.wait(there, "a", "good")
    bad = await begun(coming.wait(never, "a", "bad"))
    bad.cancel()
    await asyncio.wait([bad])
    holding = [await begun(coming.wait(never, "a", connection)) for connection in ("new", "bad")]
    async with asyncio.timeout(arrivals.PROMPT_S):
        await asyncio.gather(*(tell(connection) for connection in ("bad", "new", "good")))
    assert ended == ["good", "new", "bad"]
    assert await given_up(*holding) == [False, True]
    holding[0].cancel()


async def test_bad_connections_have_time_among_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is won if they are given up one for the other: they come again."""
    monkeypatch.setattr(arrivals, "CROWD", 0)
    monkeypatch.setattr(arrivals, "PROMPT_S", LONG_S)
    coming = at_most(1)
    bad = await begun(coming.wait(never, "a", "bad"))
    bad.cancel()
    await asyncio.wait([bad])
    tasks = [await begun(coming.wait(never, "a", "bad")) for _ in range(3)]
    await asyncio.sleep(2 * arrivals.HEARD_S)
    assert await given_up(*tasks) == [False] * 3
    assert await coming.wait(there, "a", "new") == 7
    assert await given_up(*tasks) == [True, False, False]
    for task in tasks:
        task.cancel()


async def test_of_too_many_that_wait_the_oldest_is_given_up() -> None:
    coming = at_most(1, waiting=2)
    tasks = [await begun(coming.wait(never, "a", "x")) for _ in range(4)]
    assert await given_up(*tasks) == [False, True, False, False]
    for task in tasks:
        task.cancel()


async def test_who_leaves_the_line_is_in_nobodys_way() -> None:
    coming, leave = at_most(1), asyncio.Event()
    first, second, third = [await begun(coming.wait(partial(let, leave), "a", "x")) for _ in range(3)]
    second.cancel()
    leave.set()
    assert all(await asyncio.gather(first, third))
    assert second.cancelled()


async def test_who_leaves_as_their_turn_comes_leaves_it_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "PROMPT_S", LONG_S)
    coming, leave = at_most(1), asyncio.Event()
    first, second, third = [await begun(coming.wait(partial(let, leave), "a", "x")) for _ in range(3)]
    leave.set()
    while not first.done():
        await asyncio.sleep(0)
    second.cancel()  # it has a place, and has not been told
    async with asyncio.timeout(1):
        assert await third
    assert second.cancelled()
