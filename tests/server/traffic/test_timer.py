"""server.traffic.timer: a loop that is late loses nobody's time."""

import asyncio
import time

from server.traffic.timer import Timer


async def test_it_calls_in_time() -> None:
    called = asyncio.Event()
    began_s = time.monotonic()
    Timer(0.05, called.set)
    async with asyncio.timeout(10):
        await called.wait()
    assert time.monotonic() - began_s >= 0.04


async def test_a_loop_that_was_late_has_turns_left() -> None:
    called = asyncio.Event()
    Timer(0.05, called.set)
    time.sleep(0.1)  # nobody has a turn
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
