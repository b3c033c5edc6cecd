"""The whole server: concurrent calls, latency under an open load, memory, start-up."""

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from bench.arrivals import Arrivals, arrivals
from bench.cpu.load import closed_loop, open_loop
from bench.cpu.plan import CT2_FP32, CT2_INT8, FP32, INT8, Models, Pair
from bench.cpu.races import CLOSED, Race, judge
from bench.cpu.sides.ctranslate2 import ComputeType, Ctranslate2
from bench.cpu.sides.ours import Ours
from bench.cpu.turns import players, race
from bench.cpu.work import WORKERS, Reading, Side, Work
from bench.measure import percentile
from bench.process import Server, free_port, serving
from bench.sentences import english

CALLERS = (32, 128, 512)
TEXTS_PER_CALLER = 4
LEAST_TEXTS = 320
LOAD = 0.7
"""Calls arrive at this share of what the slower of both servers can do."""
ASKED = (1.4, 0.9)
"""32 callers of our int8 server against CTranslate2 int8 offline, and against our engine alone."""


class Caller:
    """Many single-text calls at once, as somebody who takes turns."""

    rounds = None

    def __init__(self, name: str, server: Server, callers: int) -> None:
        self.name = name
        self._server, self._callers = server, callers
        self._texts: Sequence[str]

    def prepare(self, work: Work) -> str:
        self._texts = work.texts
        asyncio.run(closed_loop(self._server.target, work.texts[: len(work.texts) // 4], self._callers))
        return f"{self._callers} calls at once"

    def turn(self) -> Reading:
        """The processor time is the server's."""
        started, cpu_started = time.perf_counter(), self._server.cpu_seconds()
        asyncio.run(closed_loop(self._server.target, self._texts, self._callers))
        return Reading(0, time.perf_counter() - started, self._server.cpu_seconds() - cpu_started)


class Percentiles(BaseModel):
    """Seconds of the calls of one side, all rounds together."""

    model_config = CLOSED

    calls: int
    p50_s: float
    p99_s: float

    @classmethod
    def of(cls, seconds: list[float]) -> Self:
        return cls(calls=len(seconds), p50_s=percentile(seconds, 50), p99_s=percentile(seconds, 99))


class Latency(BaseModel):
    """Of the same arrivals at two servers."""

    model_config = CLOSED

    arrivals: Arrivals
    rate: float
    """Calls a second."""
    ours: str
    theirs: str
    our_calls: Percentiles
    their_calls: Percentiles
    asked_p50: float | None = None
    """Our median is to be at most so many times theirs."""
    asked_p99: float | None = None


class Footprint(BaseModel):
    """What a server takes."""

    model_config = CLOSED

    name: str
    start_s: float
    """From the start of the process to SERVING: the median."""
    rss_mb: float
    """After the load."""
    peak_rss_mb: float
    asked_start_s: float | None = None
    asked_rss_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Opposed:
    """A server of ours and what stands against it."""

    ours: str
    theirs: str
    package: Path
    compute_type: ComputeType
    asked: tuple[float, float] | None = None
    """Poisson, p50 and p99."""

    def our_server(self) -> tuple[str, list[str]]:
        return "server", ["--package", str(self.package), "--workers", str(WORKERS)]

    def peer_server(self, models: Models) -> tuple[str, list[str]]:
        folders = ["--checkpoint", str(models.checkpoint), "--folder", str(models.converted)]
        return "bench.cpu.sides.peer", [*folders, "--compute-type", self.compute_type]


def opposed(models: Models) -> list[Opposed]:
    """Where there is a package, a server of it and its peer."""
    both = (
        Opposed(INT8, CT2_INT8, models.int8, "int8", (1 / 5, 1 / 3)),
        Opposed(FP32, CT2_FP32, models.fp32, "float32"),
    )
    return [one for one in both if one.package.exists()]


def concurrency(models: Models, one: Opposed, callers: Sequence[int], repeats: int) -> Iterator[Race]:
    """Calls at a server, our engine alone with as many sentences outstanding, and CTranslate2's own batches."""
    alone, offline = f"{one.ours}, engine alone", f"{one.theirs}, offline, batches of 32"
    peer = partial(Ctranslate2, models.checkpoint, models.converted, one.compute_type)
    sides = [Side(alone, partial(Ours, one.package, "auto")), Side(offline, peer)]
    with serving(*one.our_server()) as server, players(sides, {}) as others:
        for count in callers:
            calls = f"{one.ours}, {count} calls at once"
            texts = tuple(english(max(LEAST_TEXTS, TEXTS_PER_CALLER * count)))
            turns = race([Caller(calls, server, count), *others], Work(texts, outstanding=count), repeats)
            name = f"{one.ours}, {count} callers"
            asked = ASKED if one.ours == INT8 and count == CALLERS[0] else (None, None)
            pairs = [
                Pair(calls, side, {} if least is None else {name: least})
                for side, least in zip((offline, alone), asked, strict=True)
            ]
            yield judge(name, "sentences", turns, pairs, lambda reading, texts=texts: len(texts))  # type: ignore[misc]


def latency(models: Models, one: Opposed, kinds: Sequence[Arrivals], rounds: int, seconds: float) -> Iterator[Latency]:
    """The same arrivals against both servers, by turns."""
    with both_serving(models, one) as servers:
        texts = english(2 * LEAST_TEXTS)
        rate = LOAD * min(asyncio.run(closed_loop(server.target, texts, 64)) for server in servers)
        texts = english(max(2, round(rate * seconds)))
        for kind in kinds:
            found: tuple[list[float], list[float]] = ([], [])
            for seed in range(rounds):
                due = arrivals(kind, len(texts), rate, seed)
                for index in (0, 1) if seed % 2 == 0 else (1, 0):
                    found[index].extend(asyncio.run(open_loop(servers[index].target, texts, due)))
            p50, p99 = one.asked if one.asked is not None and kind == "Poisson" else (None, None)
            yield Latency(
                arrivals=kind,
                rate=rate,
                ours=one.ours,
                theirs=f"{one.theirs} + batcher",
                our_calls=Percentiles.of(found[0]),
                their_calls=Percentiles.of(found[1]),
                asked_p50=p50,
                asked_p99=p99,
            )


@contextmanager
def both_serving(models: Models, one: Opposed) -> Iterator[tuple[Server, Server]]:
    """Ours and the other."""
    with ExitStack() as stack:
        yield (
            stack.enter_context(serving(*one.our_server())),
            stack.enter_context(serving(*one.peer_server(models))),
        )


def footprint(one: Opposed, times: int, http: bool) -> Footprint:
    """Start-up some times, and memory after a closed loop of 32 callers by gRPC. http: with a port for that, too."""
    starts, rss, peak = [], 0.0, 0.0
    module, arguments = one.our_server()
    for attempt in range(times + 1):
        with serving(module, [*arguments, *(["--http-port", str(free_port())] if http else [])]) as server:
            if attempt > 0:  # the first may have had modules to compile
                starts.append(server.start_s)
            if attempt == times:
                asyncio.run(closed_loop(server.target, english(LEAST_TEXTS), CALLERS[0]))
                rss, peak = server.rss_mb(), server.peak_rss_mb()
    limits = (0.5, 200.0) if one.ours == INT8 else (None, None)
    return Footprint(
        name=f"{one.ours} with HTTP" if http else one.ours,
        start_s=statistics.median(starts),
        rss_mb=rss,
        peak_rss_mb=peak,
        asked_start_s=limits[0],
        asked_rss_mb=limits[1],
    )
