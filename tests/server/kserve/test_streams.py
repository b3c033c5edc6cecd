"""server.kserve.streams: answers as they come, and an end whoever leaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from server.kserve.streams import Put, interleaved
from tests.fakes import WAIT_S

MOST = 2


async def numbers(count: int) -> AsyncIterator[int]:
    """And no end."""
    for number in range(count):
        yield number
    await asyncio.Event().wait()


async def failing(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number
    raise ValueError("no number")


async def twice(request: int, put: Put[int]) -> None:
    """Two responses."""
    await put(request)
    await put(request)


async def test_what_ends_the_requests_is_raised_after_what_was_answered() -> None:
    answered = []
    with pytest.raises(ValueError, match="no number"):
        async with asyncio.timeout(WAIT_S), aclosing(interleaved(failing(9), twice, MOST)) as responses:
            async for response in responses:
                answered.append(response)
    assert sorted(answered) == [number for number in range(9) for _ in range(2)]


@pytest.mark.parametrize("requests", [1, 2, 3, 9])
async def test_who_leaves_unread_responses_ends_all_of_it(requests: int) -> None:
    responses = interleaved(numbers(requests), twice, MOST)
    async with asyncio.timeout(WAIT_S):
        assert await anext(responses) == 0
        for _ in range(9):  # all there is room for
            await asyncio.sleep(0)
        await responses.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
