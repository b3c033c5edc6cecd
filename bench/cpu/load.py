"""Callers of a server: a closed loop that measures capacity, and Poisson arrivals that measure latency."""

import asyncio
import random
import time
from collections.abc import Sequence

from dragoman.client import AsyncClient

TIMEOUT_S = 120


async def closed_loop(target: str, texts: Sequence[str], concurrency: int) -> float:
    """Keeps so many single-text calls open until every text is translated. Returns texts a second."""
    waiting = iter(texts)

    async def call_until_done(client: AsyncClient) -> None:
        for text in waiting:
            await client.translate(text, num_beams=1, timeout_s=TIMEOUT_S)

    async with AsyncClient(target) as client:
        started = time.perf_counter()
        await asyncio.gather(*(call_until_done(client) for _ in range(concurrency)))
        return len(texts) / (time.perf_counter() - started)


async def poisson(target: str, texts: Sequence[str], rate: float, seed: int) -> list[float]:
    """Sends the texts at random times, `rate` a second on average, whatever the server does (an open loop).

    Returns the seconds of each call, from the time it was due: a client that falls behind does not hide the wait.
    """
    draw = random.Random(seed)
    arrivals = [0.0]
    for _ in texts[1:]:
        arrivals.append(arrivals[-1] + draw.expovariate(rate))

    async with AsyncClient(target) as client:
        await client.translate(texts[0], num_beams=1, timeout_s=TIMEOUT_S)  # connects
        started = time.perf_counter() + 0.1

        async def call(text: str, arrival: float) -> float:
            await asyncio.sleep(started + arrival - time.perf_counter())
            await client.translate(text, num_beams=1, timeout_s=TIMEOUT_S)
            return time.perf_counter() - started - arrival

        return list(await asyncio.gather(*map(call, texts, arrivals)))
