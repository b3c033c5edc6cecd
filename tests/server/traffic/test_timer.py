"""server.traffic.timer: a loop that is late loses nobody's time."""

import asyncio

import pytest

from server.traffic.timer import Timer
from tests.virtual_time import VirtualTime


async def test_it_calls_in_time() -> None:
    called, loop = asyncio.Event(), asyncio.get_running_loop()
    began_s = loop.time()
    Timer(0.05, called.set)
    async with asyncio.timeout(10):
        await called.wait()
    assert loop.time() - began_s == pytest.approx(0.05)


async def test_a_loop_that_was_late_has_turns_left() -> None:
    called, loop = asyncio.Event(), asyncio.get_running_loop()
    assert isinstance(loop, VirtualTime)
    Timer(0.05, called.set)
    loop.stand_still(0.1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not called.is_set()
    async with asyncio.timeout(10):
        await called.wait()


async def test_one_that_is_cancelled_calls_nothing() -> None:
    called = asyncio.Event()
    Timer(0.0, called.set).cancel()
    await asyncio.sleep(0.02)
    assert not called.is_set()
