"""The simulation beside real servers: what their turns take is asked of one of them, and the same texts come.

Servers have one worker each. One caller, and then many, tell what a turn takes at one row and at many: by the clock, so
that what a worker does between its steps is in it, and the interpreter that it shares with the calls. Processes share
the cores that the calls themselves leave. The simulation is given the times and lengths of the calls that the servers
get, and nothing else.

Paced servers wait in each turn, so that a few share two cores without slowing each other down.
"""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import astuple, dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from bench.cpu.load import TIMEOUT_S, closed_loop
from bench.fleet.replica import Text
from bench.fleet.simulation import Fleet, poisson, simulate
from bench.process import Server, serving
from bench.sentences import english
from dragoman.async_client import AsyncClient
from dragoman.errors import DragomanError
from engine.queueing.cost import Measured
from models.package.folder import Package

TEXTS = 200
LOADS = (0.3, 0.5, 0.7)
MANY = 32
"""Callers that keep a server's rows busy."""
PAUSE_S = 0.05
"""Between two calls of the only caller, on average."""
MOST_PACE = 4.0
"""Calls that need all the cores leave the workers so little of them."""


@dataclass(frozen=True)
class Costs:
    """Of one server that has the machine to itself."""

    measured: Measured
    steps: Sequence[int]
    """Of each text."""
    call_s: float
    """That a call takes beside its decoding."""
    call_cpu_s: float
    """Seconds of cores that it costs the caller and the server beside the worker."""


def validate(package: Path, processes: int, seconds: float, seed: int, paced: bool) -> None:
    """Prints p50 and p99 of both, and their ratios, at several loads."""
    texts, cores = english(TEXTS), len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        settings = ["--package", str(package), "--workers", "1", "--log-level", "error", "--cache-mb", "0"]
        module = "bench.fleet.paced_server" if paced else "server"
        servers = [stack.enter_context(serving(module, settings)) for _ in range(processes)]
        targets = [server.target for server in servers]
        costs = _costs(servers[0], texts)
        most = sum(asyncio.run(_together(targets, texts)))
        measured, times = costs.measured, (costs.call_s, costs.call_cpu_s)
        ms = ", ".join(f"{1000 * one:.3f}" for one in (measured.fixed, measured.each, measured.token, *times))
        say = partial(print, flush=True)
        say(f"{processes} servers: {most:.1f} texts/s; ms of a turn, a row, a source token, a call, its cores: {ms}")
        tokenizer = Package.open(package).tokenizer()
        lengths = [len(tokenizer.encode(text)) for text in texts]
        for load in LOADS:
            due = list(islice(poisson(load * most, seed), round(load * most * seconds)))
            real, failed = asyncio.run(_open_loop(targets, texts, due))
            if not real:
                say(f"load {load:.0%}: none of {len(due)} calls was answered in {seconds:g} s: raise --seconds")
                continue
            left = None if paced else max(cores - load * most * costs.call_cpu_s, 1 / MOST_PACE)
            fleet = Fleet(processes, measured, workers=1, routing="round robin", seed=seed, cores=left)
            simulated = [Text(at, lengths[i % TEXTS], costs.steps[i % TEXTS], 1, 1.0, i) for i, at in enumerate(due)]
            ours = simulate(fleet, simulated, len(due)).all_s + costs.call_s
            for q in (0.5, 0.99):
                one, other = 1000 * float(np.quantile(ours, q)), 1000 * float(np.quantile(real, q))
                say(f"load {load:.0%}, p{100 * q:g}: simulated {one:.1f} ms, real {other:.1f} ms: {one / other:.2f} x")
            if failed:
                say(f"load {load:.0%}: {failed} of {len(due)} calls failed, and are in no figure")


def _costs(server: Server, texts: Sequence[str]) -> Costs:
    """With one caller, who asks for every text once, and with many, who keep the worker busy."""
    before = _counted(server)
    steps, call_s = asyncio.run(_alone(server.target, texts))
    alone = _counted(server) - before
    cpu_s, before = server.cpu_seconds() + time.process_time(), _counted(server)
    rate = asyncio.run(closed_loop(server.target, [*texts, *texts], MANY))
    many, busy_s = _counted(server) - before, 2 * TEXTS / rate
    cpu_s = server.cpu_seconds() + time.process_time() - cpu_s
    one_row_s, token_s = alone.decode_s / alone.steps, alone.encode_s / alone.source_tokens
    each_s = ((busy_s - token_s * many.source_tokens) / many.steps - one_row_s) / (many.rows / many.steps - 1)
    measured = Measured(one_row_s - each_s, each_s, token_s)
    return Costs(measured, steps, call_s, max(0.0, cpu_s - busy_s) / (2 * TEXTS))


@dataclass(frozen=True)
class Counted:
    """What a server has done so far, or between two moments."""

    steps: float
    rows: float
    """Of all steps."""
    decode_s: float
    encode_s: float
    source_tokens: float

    def __sub__(self, other: "Counted") -> "Counted":
        return Counted(*(mine - its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def _counted(server: Server) -> Counted:
    return Counted(
        server.counted("dragoman_steps_total"),
        server.counted("dragoman_rows_computed_total"),
        server.counted("dragoman_phase_duration_seconds_sum", {"phase": "decode"}),
        server.counted("dragoman_phase_duration_seconds_sum", {"phase": "encode"}),
        server.counted("dragoman_source_tokens_total"),
    )


async def _together(targets: Sequence[str], texts: Sequence[str]) -> list[float]:
    return await asyncio.gather(*(closed_loop(target, [*texts, *texts], MANY) for target in targets))


async def _alone(target: str, texts: Sequence[str]) -> tuple[list[int], float]:
    """Steps of each text, and the seconds that a call takes beside its decoding: the middle one.

    With pauses, as there are at little load: a core that has slept, and whose caches others have used, is slower.
    """
    steps, besides, chance = list[int](), list[float](), random.Random(0)
    loop = asyncio.get_running_loop()
    async with AsyncClient(target) as client:
        for text in texts:
            await asyncio.sleep(chance.expovariate(1 / PAUSE_S))
            began = loop.time()
            answer = await client.translate(text, num_beams=1, no_cache=True, timeout_s=TIMEOUT_S)
            timings = answer.timings
            steps.append(timings.steps)
            besides.append(loop.time() - began - timings.encode_s - timings.decode_s)
    return steps, float(np.median(besides))


async def _open_loop(targets: Sequence[str], texts: Sequence[str], due: Sequence[float]) -> tuple[list[float], int]:
    """Seconds of every call from when it was due, which go to the servers in turn; and how many failed."""
    loop, found, failed = asyncio.get_running_loop(), list[float](), 0
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(target)) for target in targets]
        for client in clients:
            await client.translate(texts[0], num_beams=1, no_cache=True)  # connects
        started = loop.time() + 0.1

        async def call(number: int, at: float) -> None:
            nonlocal failed
            await asyncio.sleep(started + at - loop.time())
            text, client = texts[number % len(texts)], clients[number % len(clients)]
            try:
                await client.translate(text, num_beams=1, no_cache=True, timeout_s=TIMEOUT_S)
                found.append(loop.time() - started - at)
            except DragomanError:
                failed += 1

        await asyncio.gather(*(call(*one) for one in enumerate(due)))
    return found, failed
