"""Callers of a server: closed loops that measure capacity, and arrivals that measure latency."""

import asyncio
import time
from collections.abc import Sequence

from dragoman.async_client import AsyncClient

TIMEOUT_S = 120


async def closed_loop(target: str, texts: Sequence[str], concurrency: int) -> float:
    """Keeps so many single-text calls open until every text is translated. Returns texts a second."""
    waiting = iter(texts)

    async def call_until_done(client: AsyncClient) -> None:
        for text in waiting:
            await client.translate(text, num_beams=1, no_cache=True, timeout_s=TIMEOUT_S)

    async with AsyncClient(target) as client:
        started = time.perf_counter()
        await asyncio.gather(*(call_until_done(client) for _ in range(concurrency)))
        return len(texts) / (time.perf_counter() - started)


async def open_loop(target: str, texts: Sequence[str], due: Sequence[float]) -> list[float]:
    """Sends each text when it is due, whatever the server does.

    Returns the seconds of each call, from the time it was due: a client that falls behind does not hide the wait.
    """
    async with AsyncClient(target) as client:
        await client.translate(texts[0], num_beams=1, no_cache=True, timeout_s=TIMEOUT_S)  # connects
        started = time.perf_counter() + 0.1

        async def call(text: str, arrival: float) -> float:
            await asyncio.sleep(started + arrival - time.perf_counter())
            await client.translate(text, num_beams=1, no_cache=True, timeout_s=TIMEOUT_S)
            return time.perf_counter() - started - arrival

        return list(await asyncio.gather(*map(call, texts, due)))
