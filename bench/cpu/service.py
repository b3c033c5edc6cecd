"""The whole server: concurrent calls, latency under Poisson load, memory, start-up."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Self

from bench.cpu.ctranslate2 import Ctranslate2
from bench.cpu.engine import WORKERS, OurEngine
from bench.cpu.load import closed_loop, poisson
from bench.measure import alternate, percentile
from bench.process import Server, serving
from bench.sentences import english
from engine.request import Event, Failed, Translate
from models.package.folder import Package

CONCURRENCY = 32
CLOSED_LOOP_TEXTS = 640
POISSON_SECONDS = 30
LOAD = 0.7
"""Poisson arrivals come at this share of what the slower of both servers can do."""


@dataclass(frozen=True)
class Concurrency:
    """Sentences a second: medians."""

    calls: float
    """32 concurrent single-text Translate calls."""
    engine: float
    """The engine alone, as many sentences outstanding."""
    offline: float
    """CTranslate2's translate_batch of all sentences, in batches of 32."""


@dataclass(frozen=True)
class Percentiles:
    """Seconds of the calls of one side, all rounds together."""

    calls: int
    p50_s: float
    p99_s: float

    @classmethod
    def of(cls, seconds: list[float]) -> Self:
        return cls(len(seconds), percentile(seconds, 50), percentile(seconds, 99))


@dataclass(frozen=True)
class Latency:
    """Of the same arrivals at both servers."""

    rate: float
    """Calls a second."""
    ours: Percentiles
    theirs: Percentiles


@dataclass(frozen=True)
class Footprint:
    """What the server takes."""

    start_s: float
    """Median."""
    rss_mb: float
    """After the load."""
    peak_rss_mb: float


def our_server(package: Path) -> tuple[str, list[str]]:
    return "server", ["--package", str(package), "--workers", str(WORKERS)]


def peer_server(checkpoint: Path, folder: Path) -> tuple[str, list[str]]:
    return "bench.cpu.peer", ["--checkpoint", str(checkpoint), "--folder", str(folder)]


def measure_concurrency(package: Package, server: Server, theirs: Ctranslate2, repeats: int) -> Concurrency:
    """32 concurrent calls against the engine alone and against CTranslate2 offline."""
    texts = english(CLOSED_LOOP_TEXTS)
    ours = OurEngine(package)
    sources, pieces = [ours.tokenizer.encode(text) for text in texts], [theirs.tokenize(text) for text in texts]

    def engine() -> float:
        return _closed_loop_of_engine(ours, sources)

    def offline() -> float:
        started = time.perf_counter()
        theirs.translate_all(pieces, 1, CONCURRENCY)
        return len(texts) / (time.perf_counter() - started)

    def calls() -> float:
        return asyncio.run(closed_loop(server.target, texts, CONCURRENCY))

    readings = alternate({"calls": calls, "engine": engine, "offline": offline}, repeats)
    return Concurrency(**{side: series.median for side, series in readings.items()})


def measure_latency(ours: Server, theirs: Server, rounds: int) -> Latency:
    """The same arrivals against both servers, by turns."""
    capacities = [
        asyncio.run(closed_loop(server.target, english(CLOSED_LOOP_TEXTS), 2 * CONCURRENCY))
        for server in (ours, theirs)
    ]
    rate = LOAD * min(capacities)
    texts = english(round(rate * POISSON_SECONDS))
    sides = [(ours, list[float]()), (theirs, list[float]())]
    for seed in range(rounds):
        for server, calls in sides if seed % 2 == 0 else reversed(sides):
            calls += asyncio.run(poisson(server.target, texts, rate, seed))
    return Latency(rate, *(Percentiles.of(calls) for _, calls in sides))


def measure_start(package: Path, times: int) -> float:
    """Seconds from the start of the process to SERVING: the median."""
    seconds = []
    for _ in range(times):
        with serving(*our_server(package)) as server:
            seconds.append(server.start_s)
    return statistics.median(seconds)


def _closed_loop_of_engine(ours: OurEngine, sources: Sequence[Sequence[int]]) -> float:
    """Sentences a second with CONCURRENCY of them outstanding."""
    events: SimpleQueue[Event] = SimpleQueue()
    decoding = ours.decoding(num_beams=1)
    with ours.open(rows=64) as runner:
        started = time.perf_counter()
        for index, source in enumerate(sources):
            if index >= CONCURRENCY:
                _require_answer(events.get())
            runner.submit(Translate(tuple(source), events.put, decoding=decoding, rules=ours.rules))
        for _ in range(CONCURRENCY):
            _require_answer(events.get())
        return len(sources) / (time.perf_counter() - started)


def _require_answer(event: Event) -> None:
    if isinstance(event, Failed):
        raise event.error
