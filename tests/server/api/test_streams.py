"""Streams that are answered by streams."""

import weakref
from collections.abc import AsyncIterator
from contextlib import aclosing

from server.api.streams import in_order


class Answer:
    """Something that can be seen to be gone."""


async def numbers() -> AsyncIterator[int]:
    """So many that keeping what became of each would be seen."""
    for number in range(100):
        yield number


async def test_what_was_given_is_not_kept() -> None:
    made = list[weakref.ref[Answer]]()

    async def work(number: int) -> Answer:
        made.append(weakref.ref(answer := Answer()))
        return answer

    async with aclosing(in_order(numbers(), work, 4)) as answers:
        async for _ in answers:
            assert sum(answer() is not None for answer in made) <= 4 + 3
    assert len(made) == 100
