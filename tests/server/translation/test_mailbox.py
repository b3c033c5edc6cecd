"""server.translation.sharing.mailbox: events of many threads, in order, with few wake-ups."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from engine.request import Event, Tokens
from server.translation.sharing.mailbox import Mailbox
from tests.fakes import WAIT_S


async def test_events_that_come_together_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, mailbox = asyncio.get_running_loop(), Mailbox()
    woken, wake = list[object](), loop.call_soon_threadsafe

    def count(callback: Callable[[], object]) -> None:
        woken.append(callback)
        wake(callback)

    monkeypatch.setattr(loop, "call_soon_threadsafe", count)
    first, second = asyncio.Queue[Event](), asyncio.Queue[Event]()
    for number in range(3):
        mailbox.post(loop, first.put_nowait, Tokens((number,)))
        mailbox.post(loop, second.put_nowait, Tokens((-number,)))
    assert [(await first.get(), await second.get()) for _ in range(3)] == [
        (Tokens((number,)), Tokens((-number,))) for number in range(3)
    ]
    assert len(woken) == 1
    mailbox.post(loop, first.put_nowait, Tokens((7,)))
    assert await first.get() == Tokens((7,))
    assert len(woken) == 2


async def test_no_event_of_many_threads_is_left_behind() -> None:
    loop, mailbox = asyncio.get_running_loop(), Mailbox()
    queues = [asyncio.Queue[Event]() for _ in range(4)]

    def work(queue: asyncio.Queue[Event]) -> None:
        for number in range(500):
            mailbox.post(loop, queue.put_nowait, Tokens((number,)))

    threads = [threading.Thread(target=work, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(WAIT_S):
        for queue in queues:
            assert [await queue.get() for _ in range(500)] == [Tokens((number,)) for number in range(500)]
    for thread in threads:
        thread.join()


async def test_a_loop_that_is_gone_is_told_of_every_time() -> None:
    loop, mailbox, queue = asyncio.new_event_loop(), Mailbox(), asyncio.Queue[Event]()
    loop.close()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            mailbox.post(loop, queue.put_nowait, Tokens((1,)))
