"""server.http.events: a stream that nobody reads is given up, whether it has something to say or not."""

import asyncio
from dataclasses import replace

import pytest
from starlette.types import Message

from server.config import Settings
from server.errors import StreamStalled
from server.http.events import Event, EventWriter
from server.traffic.bounds import Bounds
from server.traffic.departures import Departures
from server.traffic.traffic import Traffic

UNREAD = Traffic.of(settings := Settings(), Bounds.within(settings, None))
UNREAD = replace(UNREAD, departures=Departures(1_000_000, 0.01))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.http.events.BEAT_S", 0.0)


async def never(_: Message) -> None:
    await asyncio.Event().wait()


async def test_a_beat_that_is_not_read_ends_the_stream() -> None:
    writer = EventWriter(never, UNREAD, {})
    with pytest.raises(StreamStalled):
        async with writer.beating():
            await asyncio.Event().wait()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_event_that_is_not_read_ends_it_once() -> None:
    unhandled = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    writer = EventWriter(never, UNREAD, {})
    with pytest.raises(StreamStalled):
        async with writer.beating():
            await writer.write(Event("delta", {}))
    await asyncio.sleep(0)
    assert not unhandled


async def test_what_else_takes_too_long_is_told_as_it_is() -> None:
    with pytest.raises(TimeoutError):
        async with EventWriter(never, replace(UNREAD, departures=Departures(1_000_000, 3600.0)), {}).beating():
            raise TimeoutError
