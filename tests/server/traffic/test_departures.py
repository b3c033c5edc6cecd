"""server.traffic.departures: for so long, and so much of them at a time."""

import asyncio

import pytest

from server.traffic.bounds import CALL_BYTES
from server.traffic.departures import Departures

LONG_S = 3600.0
ROOM = 2 * CALL_BYTES + 10
"""For two calls."""


async def leaving(departures: Departures, size: int, read: asyncio.Event) -> str:
    """An answer that stays until it is read."""
    departures.begin(size)
    try:
        await read.wait()
    except asyncio.CancelledError:
        return "given up"
    return "read"


async def begun(departures: Departures, size: int, read: asyncio.Event) -> "asyncio.Task[str]":
    task = asyncio.create_task(leaving(departures, size, read))
    await asyncio.sleep(0)
    return task


async def test_answers_that_are_not_read_in_time_are_given_up() -> None:
    departures, read = Departures(ROOM, 0.01), asyncio.Event()
    assert await (await begun(departures, 1, read)) == "given up"


async def test_of_more_than_there_is_room_for_the_oldest_are_given_up() -> None:
    departures, read = Departures(ROOM, LONG_S), asyncio.Event()
    tasks = [await begun(departures, size, read) for size in (4, 5, 6, ROOM)]
    read.set()
    assert await asyncio.gather(*tasks) == ["given up", "given up", "given up", "read"]


async def test_who_has_read_leaves_room_for_others() -> None:
    departures, read = Departures(ROOM, LONG_S), asyncio.Event()
    read.set()
    for _ in range(3):
        assert await (await begun(departures, 9, read)) == "read"
    waiting = [await begun(departures, 5, asyncio.Event()) for _ in range(2)]
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()


async def test_a_part_of_a_stream_waits_in_the_same_room() -> None:
    departures, read = Departures(ROOM, LONG_S), asyncio.Event()
    answers = [await begun(departures, 4, read) for _ in range(2)]
    part = asyncio.create_task(departures.wait(9, read.wait()))
    await asyncio.sleep(0)
    answers.append(await begun(departures, CALL_BYTES, read))
    with pytest.raises(TimeoutError):
        await part
    read.set()
    assert await asyncio.gather(*answers) == ["given up", "given up", "read"]
    assert await departures.wait(9, asyncio.sleep(0, 7)) == 7


async def test_a_part_that_is_not_read_in_time_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        await Departures(ROOM, 0.01).wait(1, asyncio.Event().wait())


async def test_a_part_on_its_way_out_is_not_given_up_again() -> None:
    leave = asyncio.Event()

    async def slow_to_leave() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await leave.wait()

    departures = Departures(ROOM, 0.01)
    part = asyncio.create_task(departures.wait(ROOM, slow_to_leave()))
    await asyncio.sleep(0.05)  # its time is over, and it has not left
    assert await departures.wait(ROOM, asyncio.sleep(0, 7)) == 7
    leave.set()
    with pytest.raises(TimeoutError):
        await part
