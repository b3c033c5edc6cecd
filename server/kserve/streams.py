"""Streams of requests that are worked on at once, and answered as the answers come."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TypeVar

Q = TypeVar("Q")
R = TypeVar("R")
Put = Callable[[R], Awaitable[None]]
"""Sends a response; waits while the caller does not read."""


async def interleaved(
    requests: AsyncIterable[Q], work: Callable[[Q, Put[R]], Awaitable[None]], most: int
) -> AsyncGenerator[R]:
    """The responses that work on the requests puts, as they come. At most so many requests are worked on at once.

    Raises what ends the requests, after all before that are answered. Closing it cancels what is under way.
    """
    responses = asyncio.Queue[tuple[R] | None](most)
    under_way = set[asyncio.Task[None]]()
    room = asyncio.Semaphore(most)

    async def put(response: R) -> None:
        await responses.put((response,))

    async def answer(request: Q) -> None:
        await work(request, put)

    def done(task: asyncio.Task[None]) -> None:
        under_way.remove(task)
        room.release()

    async def end() -> None:
        await asyncio.gather(*under_way, return_exceptions=True)
        await responses.put(None)

    async def take_in() -> None:
        try:
            async for request in requests:
                await room.acquire()
                under_way.add(task := asyncio.create_task(answer(request)))
                task.add_done_callback(done)
        except Exception:
            await end()
            raise
        await end()  # not where it is cancelled: nobody takes responses any more, so that there may be no room for one

    reading = asyncio.create_task(take_in())
    try:
        while (response := await responses.get()) is not None:
            yield response[0]
        await reading
    finally:
        working = [reading, *under_way]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
