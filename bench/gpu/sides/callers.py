"""Callers over gRPC, in processes of their own: one Python process asks for less than a GPU answers."""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from threading import Barrier

import grpc
import uvloop
from grpc import aio

from bench.arrivals import arrivals
from bench.gpu.plan import Findings
from bench.measure import percentile
from dragoman.errors import from_rpc
from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

PATIENCE_S = 60.0
"""Long enough that the server refuses no call for fear of being late."""
START_S = 60.0
"""In which all processes must have started."""
REST_S = 0.05
"""After a failure: a caller that comes back at once would only keep the machine busy."""


@dataclass(frozen=True)
class Asked:
    """What every call asks for: one of the texts, greedy, decoded for itself."""

    target: str
    texts: tuple[str, ...]
    max_new_tokens: int

    def requests(self) -> list[TranslateRequest]:
        """One for each text."""
        decoding = DecodingOptions(num_beams=1, max_new_tokens=self.max_new_tokens)
        return [TranslateRequest(contents=[text], decoding=decoding, no_cache=True) for text in self.texts]


@dataclass
class Tally:
    """What became of calls."""

    seconds: list[float] = field(default_factory=list)
    """Of those that were answered."""
    tokens: int = 0
    """Of targets."""
    failures: Counter[str] = field(default_factory=Counter)
    """By reason, or by gRPC's own status."""

    def add(self, other: "Tally") -> None:
        """Those of another process."""
        self.seconds += other.seconds
        self.tokens += other.tokens
        self.failures += other.failures

    def findings(self, window_s: float) -> Findings:
        """Raises RuntimeError if nothing was answered."""
        if not self.seconds:
            raise RuntimeError(f"no call was answered; failures: {dict(self.failures)}")
        return {
            "tokens_per_s": self.tokens / window_s,
            "calls_per_s": len(self.seconds) / window_s,
            "p50_ms": percentile(self.seconds, 50) * 1000,
            "p99_ms": percentile(self.seconds, 99) * 1000,
            "answered": len(self.seconds),
            "failures": self.failures.total(),
        } | {f"failed, {reason}": count for reason, count in self.failures.items()}


class Callers:
    """Processes that call one server, all at the same time."""

    def __init__(self, pool: ProcessPoolExecutor, processes: int, asked: Asked) -> None:
        self._pool, self._processes, self._asked = pool, processes, asked

    def closed_loop(self, callers: int, warm_up_s: float, window_s: float) -> Tally:
        """Each caller makes one call after the other. What ends after the warm-up and within the window counts."""
        shares = [callers // self._processes + (n < callers % self._processes) for n in range(self._processes)]
        return self._together(_closed_loop, [(self._asked, share, warm_up_s, window_s) for share in shares])

    def open_loop(self, rate: float, window_s: float) -> Tally:
        """So many calls a second at random times (Poisson), whatever the server does. All of them count."""
        due = arrivals("Poisson", max(self._processes, round(rate * window_s)), rate, seed=3)
        return self._together(_open_loop, [(self._asked, due[n :: self._processes]) for n in range(self._processes)])

    def _together(self, work: Callable[..., Tally], given: Sequence[tuple[object, ...]]) -> Tally:
        """One piece of work for each process: all take longer than handing them out does."""
        tally = Tally()
        for future in [self._pool.submit(work, *each) for each in given]:
            tally.add(future.result())
        return tally


@contextmanager
def calling(asked: Asked, processes: int) -> Iterator[Callers]:
    """Spawned, because gRPC does not survive a fork. All have started when this gives the callers."""
    context = get_context("spawn")
    barrier = context.Barrier(processes)
    with ProcessPoolExecutor(processes, context, _wait_for_all, (barrier,)) as pool:
        for started in [pool.submit(os.getpid) for _ in range(processes)]:
            started.result()
        yield Callers(pool, processes, asked)


def _wait_for_all(barrier: Barrier) -> None:
    barrier.wait(START_S)


def _closed_loop(asked: Asked, callers: int, warm_up_s: float, window_s: float) -> Tally:
    return uvloop.run(_call_until_over(asked, callers, warm_up_s, window_s))


def _open_loop(asked: Asked, due: Sequence[float]) -> Tally:
    return uvloop.run(_call_when_due(asked, due))


async def _call_until_over(asked: Asked, callers: int, warm_up_s: float, window_s: float) -> Tally:
    begins_s = time.perf_counter() + warm_up_s
    ends_s = begins_s + window_s
    warm_up, tally, draw, requests = Tally(), Tally(), random.Random(callers), asked.requests()

    def current() -> Tally:
        """Where a call counts that ends now."""
        return tally if begins_s <= time.perf_counter() < ends_s else warm_up

    async with aio.insecure_channel(asked.target) as channel:
        stub = TranslationServiceStub(channel)

        async def call_until_over() -> None:
            while time.perf_counter() < ends_s:
                if not await _call(stub, draw.choice(requests), time.perf_counter(), current):
                    await asyncio.sleep(REST_S)

        await asyncio.gather(*(call_until_over() for _ in range(callers)))
    return tally


async def _call_when_due(asked: Asked, due: Sequence[float]) -> Tally:
    """Times are from when a call was due: a process that falls behind does not hide the wait."""
    tally, draw, requests = Tally(), random.Random(len(due)), asked.requests()
    async with aio.insecure_channel(asked.target) as channel:
        stub = TranslationServiceStub(channel)
        await channel.channel_ready()
        started_s, calls = time.perf_counter(), list[asyncio.Task[bool]]()
        for at_s in due:
            if (early_s := started_s + at_s - time.perf_counter()) > 0:
                await asyncio.sleep(early_s)
            calls.append(asyncio.create_task(_call(stub, draw.choice(requests), started_s + at_s, lambda: tally)))
        await asyncio.gather(*calls)
    return tally


async def _call(
    stub: TranslationServiceStub, request: TranslateRequest, since_s: float, current: Callable[[], Tally]
) -> bool:
    """Whether it was answered. since_s: by time.perf_counter, what its time counts from."""
    try:
        answer = await stub.Translate(request, timeout=PATIENCE_S)  # type: ignore[misc]  # the stub is asyncio's
    except grpc.RpcError as error:
        current().failures[from_rpc(error).reason or error.code().name] += 1
        return False
    tally = current()
    tally.seconds.append(time.perf_counter() - since_s)
    tally.tokens += sum(translation.hypotheses[0].tokens for translation in answer.translations)
    return True
