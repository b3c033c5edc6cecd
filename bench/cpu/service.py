"""The whole server: concurrent calls, latency under Poisson load, memory, start-up."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from bench.cpu.ctranslate2 import Ctranslate2
from bench.cpu.engine import WORKERS, OurEngine
from bench.cpu.load import closed_loop, poisson
from bench.measure import Series, alternate, percentile
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
    """Sentences a second."""

    calls: Series
    """32 concurrent single-text Translate calls."""
    engine: Series
    """The engine alone, as many sentences outstanding."""
    offline: Series
    """CTranslate2's translate_batch of all sentences, in batches of 32."""


@dataclass(frozen=True)
class Latency:
    """Seconds of every call, each round a list."""

    rate: float
    """Calls a second."""
    ours: list[list[float]]
    theirs: list[list[float]]

    def ratio(self, percent: int) -> float:
        """Our percentile over theirs, all rounds together."""
        return self.of(self.ours, percent) / self.of(self.theirs, percent)

    @staticmethod
    def of(rounds: list[list[float]], percent: int) -> float:
        return percentile([seconds for calls in rounds for seconds in calls], percent)


@dataclass(frozen=True)
class Footprint:
    """What the server takes."""

    start_s: list[float]
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
    return Concurrency(**readings)


def measure_latency(ours: Server, theirs: Server, rounds: int) -> Latency:
    """The same arrivals against both servers, by turns."""
    capacities = [
        asyncio.run(closed_loop(server.target, english(CLOSED_LOOP_TEXTS), 2 * CONCURRENCY))
        for server in (ours, theirs)
    ]
    rate = LOAD * min(capacities)
    texts = english(round(rate * POISSON_SECONDS))
    latency = Latency(rate, [], [])
    for seed in range(rounds):
        sides = [(ours, latency.ours), (theirs, latency.theirs)]
        for server, calls in sides if seed % 2 == 0 else reversed(sides):
            calls.append(asyncio.run(poisson(server.target, texts, rate, seed)))
    return latency


def measure_start(package: Path, times: int) -> list[float]:
    """Seconds from the start of the process to SERVING."""
    seconds = []
    for _ in range(times):
        with serving(*our_server(package)) as server:
            seconds.append(server.start_s)
    return seconds


def _closed_loop_of_engine(ours: OurEngine, sources: Sequence[Sequence[int]]) -> float:
    """Sentences a second with CONCURRENCY of them outstanding."""
    events: SimpleQueue[Event] = SimpleQueue()
    decoding = ours.decoding(num_beams=1)
    with ours.scheduler(max_rows=64) as scheduler:
        started = time.perf_counter()
        for index, source in enumerate(sources):
            if index >= CONCURRENCY:
                _require_answer(events.get())
            scheduler.submit(Translate(tuple(source), events.put, decoding=decoding))
        for _ in range(CONCURRENCY):
            _require_answer(events.get())
        return len(sources) / (time.perf_counter() - started)


def _require_answer(event: Event) -> None:
    if isinstance(event, Failed):
        raise event.error
