"""The simulation beside real servers: what their steps take is asked of their metrics, and the same texts come.

Servers have one worker each. One caller, and then many, tell what a step takes at few rows and at many; the
simulation is then given the times and lengths of the calls that the servers get, and nothing else.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bench.cpu.load import TIMEOUT_S, closed_loop
from bench.fleet.replica import Text
from bench.fleet.simulation import Fleet, poisson, simulate
from bench.process import Server, serving
from bench.sentences import english
from dragoman.async_client import AsyncClient
from engine.queueing.cost import Measured
from models.package.folder import Package

TEXTS, CALLERS = 200, 16
LOADS = (0.3, 0.5, 0.7)
MANY = 32
"""Callers that keep a server's rows busy."""


def validate(package: Path, processes: int, seconds: float, seed: int) -> None:
    """Prints p50 and p99 of both, and their ratios, at several loads."""
    texts = english(TEXTS)
    with ExitStack() as stack:
        settings = ["--package", str(package), "--workers", "1", "--log-level", "error", "--cache-mb", "0"]
        servers = [stack.enter_context(serving("server", settings)) for _ in range(processes)]
        targets = [server.target for server in servers]
        measured = _measured(servers, texts)
        steps, overhead_s = asyncio.run(_alone(targets[0], texts))
        most = sum(asyncio.run(_together(targets, texts)))
        ms = ", ".join(f"{1000 * value:.3f}" for value in (measured.fixed, measured.each, measured.token, overhead_s))
        print(f"{processes} servers: {most:.1f} texts/s; ms of a step, a row, a source token, a call: {ms}")
        tokenizer = Package.open(package).tokenizer()
        lengths = [len(tokenizer.encode(text)) for text in texts]
        for load in LOADS:
            due = poisson(load * most, round(load * most * seconds), seed)
            real = asyncio.run(_open_loop(targets, texts, due))
            fleet = Fleet(processes, measured, workers=1, routing="round robin", seed=seed)
            simulated = [Text(at, lengths[i % TEXTS], steps[i % TEXTS], 1, 1.0) for i, at in enumerate(due)]
            simulate(fleet, simulated)
            ours = np.array([text.answered - text.arrived + overhead_s for text in simulated])
            for q in (0.5, 0.99):
                one, other = 1000 * float(np.quantile(ours, q)), 1000 * float(np.quantile(real, q))
                print(
                    f"load {load:.0%}, p{100 * q:g}: simulated {one:.1f} ms, real {other:.1f} ms: {one / other:.2f} x"
                )


def _measured(servers: Sequence[Server], texts: Sequence[str]) -> Measured:
    """What steps and source tokens take while all servers compute: with one caller of each, and with many."""
    readings = []
    for callers in (1, MANY):
        before = [_counted(server) for server in servers]
        asyncio.run(_closed_loops([server.target for server in servers], texts, callers))
        after = [_counted(server) for server in servers]
        readings.append(np.sum(np.array(after) - np.array(before), axis=0))
    (few_s, few_steps, few_rows, *encoded), (many_s, many_steps, many_rows, *_) = readings
    rows = few_rows / few_steps, many_rows / many_steps
    step_s = few_s / few_steps, many_s / many_steps
    each = (step_s[1] - step_s[0]) / (rows[1] - rows[0])
    return Measured(step_s[0] - each * rows[0], each, encoded[0] / encoded[1])


def _counted(server: Server) -> list[float]:
    phase = {"phase": "encode"}
    return [
        server.counted("dragoman_step_seconds_total"),
        server.counted("dragoman_steps_total"),
        server.counted("dragoman_rows_computed_total"),
        server.counted("dragoman_phase_duration_seconds_sum", phase),
        server.counted("dragoman_source_tokens_total"),
    ]


async def _closed_loops(targets: Sequence[str], texts: Sequence[str], callers: int) -> list[float]:
    return await asyncio.gather(*(closed_loop(target, texts, callers) for target in targets))


async def _together(targets: Sequence[str], texts: Sequence[str]) -> list[float]:
    return await _closed_loops(targets, [*texts, *texts], MANY)


async def _alone(target: str, texts: Sequence[str]) -> tuple[list[int], float]:
    """Steps of each text, and the seconds that a call takes beside its decoding: the middle one."""
    steps, besides = list[int](), list[float]()
    loop = asyncio.get_running_loop()
    async with AsyncClient(target) as client:
        for text in texts:
            began = loop.time()
            answer = await client.translate(text, num_beams=1, no_cache=True, timeout_s=TIMEOUT_S)
            timings = answer.timings
            steps.append(timings.steps)
            besides.append(loop.time() - began - timings.encode_s - timings.decode_s)
    return steps, float(np.median(besides))


async def _open_loop(targets: Sequence[str], texts: Sequence[str], due: Sequence[float]) -> list[float]:
    """Seconds of every call from when it was due, which go to the servers in turn."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        clients = [await client.__aenter__() for client in map(AsyncClient, targets)]
        for client in clients:
            await client.translate(texts[0], num_beams=1, no_cache=True)  # connects
        started = loop.time() + 0.1

        async def call(number: int, at: float) -> float:
            await asyncio.sleep(started + at - loop.time())
            client = clients[number % len(clients)]
            await client.translate(texts[number % len(texts)], num_beams=1, no_cache=True, timeout_s=TIMEOUT_S)
            return loop.time() - started - at

        calls = [group.create_task(call(*one)) for one in enumerate(due)]
    for client in clients:
        await client.close()
    return [call.result() for call in calls]
