"""Streams of requests that are answered by streams of responses."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

Q = TypeVar("Q")
R = TypeVar("R")


async def in_order(requests: AsyncIterable[Q], work: Callable[[Q], Awaitable[R]], ahead: int) -> AsyncGenerator[R]:
    """What becomes of each request, in their order. So many more than the one that is waited for are worked on.

    Raises what the first one that fails raises, or what ends the requests, after all before that were given. Closing it
    cancels what is under way.
    """
    answers = asyncio.Queue[asyncio.Future[R | None]](ahead)
    under_way = set[asyncio.Future[R | None]]()

    async def put(answer: Awaitable[R | None]) -> None:
        under_way.add(task := asyncio.ensure_future(answer))
        await answers.put(task)

    async def take_in() -> None:
        try:
            async for request in requests:
                await put(work(request))
        except Exception as error:
            await put(_raising(error))
        else:
            await put(_nothing())

    reading = asyncio.create_task(take_in())
    try:
        while (response := await (answer := await answers.get())) is not None:
            under_way.discard(answer)
            yield response
    finally:
        reading.cancel()
        for task in under_way:
            task.cancel()
        await asyncio.gather(reading, *under_way, return_exceptions=True)


class Room:
    """For what is under way at once: each takes as much as it weighs. The first to come is the first to be let in."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    @asynccontextmanager
    async def taken(self, weight: int) -> AsyncGenerator[None]:
        """Waits until there is so much of it. What weighs more than all of it is let in alone."""
        weight = min(weight, self._size)
        async with self._turn:
            while self._free < weight:
                self._freed.clear()
                await self._freed.wait()
            self._free -= weight
        try:
            yield
        finally:
            self._free += weight
            self._freed.set()


async def _nothing() -> None:
    """What stands for the end."""


async def _raising(error: Exception) -> None:
    raise error
