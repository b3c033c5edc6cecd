"""StreamTranslate by both clients."""

import asyncio
from contextlib import aclosing, closing

import pytest

from dragoman import AsyncClient, Client, TextDelta, Translation
from dragoman.errors import InvalidArgument
from tests.client.clients import Call
from tests.client.fake_server import WAIT_S, FakeServer
from tests.client.methods.answers import TIMINGS


def test_a_stream_gives_deltas_and_then_the_translation(server: FakeServer, call: Call) -> None:
    *deltas, last = call(server.target, "stream_translate", "one two three")
    assert deltas == [TextDelta("ONE"), TextDelta("TWO"), TextDelta("THREE")]
    assert isinstance(last, Translation)
    assert last.text == "".join(delta.text for delta in deltas)
    assert last.timings == TIMINGS


def test_a_stream_that_fails_midway_raises(server: FakeServer) -> None:
    with Client(server.target) as client:
        events = client.stream_translate("too long")
        assert next(events) == TextDelta("TOO")
        with pytest.raises(InvalidArgument, match="1300 tokens"):
            next(events)


def test_leaving_a_stream_cancels_it(server: FakeServer) -> None:
    with Client(server.target) as client:
        with closing(client.stream_translate("hold on")) as events:
            assert next(events) == TextDelta("HOLD")
            assert server.held.wait(WAIT_S)
        assert server.left.wait(WAIT_S)


async def test_leaving_an_async_stream_cancels_it(server: FakeServer) -> None:
    async with AsyncClient(server.target) as client:
        async with aclosing(client.stream_translate("hold on")) as events:
            assert await anext(events) == TextDelta("HOLD")
            assert await asyncio.to_thread(server.held.wait, WAIT_S)
        assert await asyncio.to_thread(server.left.wait, WAIT_S)
