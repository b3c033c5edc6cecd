"""server.traffic.held: so much of requests at a time, and something for everybody."""

import asyncio

import pytest

from server.errors import RequestsTooLarge
from server.errors.retry import JITTER
from server.traffic.bounds import SMALL_BYTES
from server.traffic.held import RETRY_S, Held

ROOM = 8000


async def answering(held: Held, size: int, caller: str, end: asyncio.Event) -> None:
    held.begin(size, caller)
    await end.wait()


async def begun(held: Held, size: int, caller: str, end: asyncio.Event) -> "asyncio.Task[None]":
    task = asyncio.create_task(answering(held, size, caller, end))
    await asyncio.sleep(0)
    return task


async def test_what_has_no_room_is_told_how_much_there_is() -> None:
    held, end = Held(ROOM), asyncio.Event()
    tasks = [await begun(held, 4000, caller, end) for caller in "ab"]
    with pytest.raises(RequestsTooLarge) as told:
        held.begin(1000, "c")
    assert told.value.metadata == {"size_bytes": "1000", "held_bytes": "8000", "max_held_bytes": "8000"}
    assert told.value.retry_after_s is not None
    held.begin(SMALL_BYTES, "c")
    end.set()
    await asyncio.gather(*tasks)
    await asyncio.sleep(0)
    held.begin(ROOM, "c")


async def test_advice_has_jitter() -> None:
    held, advice = Held(ROOM), set[float | None]()
    task = await begun(held, ROOM, "a", end := asyncio.Event())
    for _ in range(10):
        with pytest.raises(RequestsTooLarge) as told:
            held.begin(1000, "b")
        advice.add(told.value.retry_after_s)
    assert len(advice) == 10
    assert all(one is not None and RETRY_S <= one <= RETRY_S * (1 + JITTER) for one in advice)
    end.set()
    await task


async def test_one_caller_leaves_room_for_another() -> None:
    held, end = Held(ROOM), asyncio.Event()
    tasks = [await begun(held, 3500, "a", end) for _ in range(2)]
    with pytest.raises(RequestsTooLarge):
        held.begin(1000, "a")
    held.begin(1000, "b")
    end.set()
    await asyncio.gather(*tasks)


async def test_a_request_that_is_larger_than_the_room_is_let_in_alone() -> None:
    held, end = Held(ROOM), asyncio.Event()
    task = await begun(held, 10 * ROOM, "a", end)
    with pytest.raises(RequestsTooLarge):
        held.begin(1000, "b")
    end.set()
    await task


async def test_the_messages_of_a_stream_follow_each_other() -> None:
    held = Held(ROOM)
    for _ in range(5):
        held.begin(6000, "a")
    with pytest.raises(RequestsTooLarge):
        await asyncio.create_task(answering(held, 6000, "b", asyncio.Event()))
    held.begin(1, "a")
    ended = asyncio.Event()
    ended.set()
    await asyncio.create_task(answering(held, 6000, "b", ended))
