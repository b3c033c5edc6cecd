"""`python -m bench.server.overload`: more calls than a server can do, each with a deadline. See docs/benchmarks.md.

Goodput is what was answered in time, as a share of what the server does when nobody is in a hurry; in characters, as
short texts are let in sooner. Capacity is measured before and after each load, and its mean counts: machines change.
Server and callers share this machine, so what the callers cost is lost to the server, and the more so the more of them
it refuses.
"""

import argparse
import asyncio
import gc
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import uvloop
from grpc import aio

from bench.arrivals import arrivals
from bench.flags.values import package_at, positive
from bench.measure import percentile
from bench.process import Server, or_exit, serving
from bench.sentences import english
from dragoman.errors import from_rpc
from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

ROOT = Path(__file__).parents[2]
LOADS = (0.7, 1.5, 2.5, 10.0)
"""Calls that arrive for each that the server can do."""
DEADLINE_S = 1.0
CONTENTS = 4
"""Of a call."""
TOGETHER = 48
"""Calls that are kept open to measure capacity."""
PATIENCE_S = 60.0
COLUMNS = (
    "load",
    "capacity, characters/s",
    "calls",
    "goodput",
    "rows for nobody",
    "refused after p50 / p99",
    "callers' cores",
    "ends",
)
NOTHING = "-"
"""Where no call was refused."""


@dataclass
class Outcome:
    """Of one load."""

    sent: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """What calls ended with: "in time", a reason, or a status of gRPC's own."""
    characters: int = 0
    """Of the calls that were answered in time."""
    refusals_s: list[float] = field(default_factory=list)
    """How long it took to be refused."""
    callers_s: float = 0.0
    """Of a core, that the callers took."""

    @property
    def refused_after(self) -> str:
        """p50 / p99 of that."""
        if not self.refusals_s:
            return NOTHING
        half, most = (percentile(self.refusals_s, percent) * 1e3 for percent in (50, 99))
        return f"{half:.1f} / {most:.1f} ms"

    @property
    def ended(self) -> str:
        """What calls ended with, and how many of them."""
        return ", ".join(f"{end} {count}" for end, count in self.ends.most_common())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.overload", description=__doc__)
    parser.add_argument("--package", type=package_at, default=ROOT / "models" / "zoo" / "en-pt", help="what is served")
    parser.add_argument("--seconds", type=positive, default=15, help="of each load")
    parser.add_argument("--loads", type=positive, nargs="+", default=LOADS, help="calls for each that it can do")
    parser.add_argument("server", nargs="*", help="more arguments of the server, after --")
    arguments = parser.parse_args()
    with or_exit(parser), serving("server", ["--package", str(arguments.package), *arguments.server]) as server:
        uvloop.run(measure(server, arguments.loads, arguments.seconds))


async def measure(server: Server, loads: Sequence[float], seconds: float) -> None:
    """Says what becomes of each load."""
    async with aio.insecure_channel(server.target) as channel:
        stub, texts = TranslationServiceStub(channel), english(1000)
        await capacity(stub, texts, seconds / 2)  # warms up
        before = await capacity(stub, texts, seconds / 2)
        print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
        for load in loads:
            before_load = rows(server)
            rate = load * before / CONTENTS / (sum(map(len, texts)) / len(texts))
            outcome = await overload(stub, texts, rate, seconds)
            computed, for_nobody = (now - then for now, then in zip(rows(server), before_load, strict=True))
            after = await capacity(stub, texts, seconds / 2)
            mean = (before + after) / 2
            cells = [f"{load:g}", f"{mean:.0f}", str(outcome.sent), f"{outcome.characters / seconds / mean:.0%}"]
            cells += [f"{for_nobody / max(1, computed):.1%}", outcome.refused_after]
            cells += [f"{outcome.callers_s / seconds:.2f}", outcome.ended]
            print(f"| {' | '.join(cells)} |", flush=True)
            before = after


def rows(server: Server) -> tuple[float, float]:
    """Computed so far, and of them for callers who had left."""
    for_nobody = server.counted("dragoman_rows_wasted_total", {"reason": "cancelled"})
    return server.counted("dragoman_rows_computed_total"), for_nobody


def request(texts: Sequence[str], draw: random.Random) -> TranslateRequest:
    """Some of the texts, decoded for themselves."""
    return TranslateRequest(contents=draw.sample(texts, CONTENTS), no_cache=True)


def characters(request: TranslateRequest) -> int:
    """Of its texts."""
    return sum(map(len, request.contents))


async def capacity(stub: TranslationServiceStub, texts: Sequence[str], seconds: float) -> float:
    """Characters a second of callers that wait for each other. Ends the process where there are none."""
    draw, ends_s = random.Random(1), time.perf_counter() + seconds
    done = 0

    async def call() -> None:
        nonlocal done
        while time.perf_counter() < ends_s:
            asked = request(texts, draw)
            await stub.Translate(asked, timeout=PATIENCE_S)  # type: ignore[misc]  # the stub is asyncio's
            done += characters(asked) * (time.perf_counter() < ends_s)

    await asyncio.gather(*(call() for _ in range(TOGETHER)))
    if not done:
        sys.exit(f"nothing was answered in {seconds:g} s: give it more --seconds")
    return done / seconds


async def overload(stub: TranslationServiceStub, texts: Sequence[str], rate: float, seconds: float) -> Outcome:
    """Calls that come whatever the server does. They cost as little as may be: what can be done before or after is."""
    outcome, draw = Outcome(), random.Random(2)
    due = arrivals("Poisson", max(1, round(rate * seconds)), rate, seed=3)
    requests, errors = [request(texts, draw) for _ in due], list[grpc.RpcError]()

    async def call(asked: TranslateRequest) -> None:
        started_s = time.perf_counter()
        try:
            await stub.Translate(asked, timeout=DEADLINE_S)  # type: ignore[misc]  # as above
        except grpc.RpcError as error:
            errors.append(error)
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                outcome.refusals_s.append(time.perf_counter() - started_s)
        else:
            outcome.ends["in time"] += 1
            outcome.characters += characters(asked)

    gc.collect()
    gc.disable()  # it would stop the callers for a tenth of a second, and count that as the server's
    started_s, taken_s, calls = time.perf_counter(), time.process_time(), list[asyncio.Task[None]]()
    for at_s, asked in zip(due, requests, strict=True):
        if (early_s := started_s + at_s - time.perf_counter()) > 0:
            await asyncio.sleep(early_s)
        calls.append(asyncio.create_task(call(asked)))
    outcome.sent = len(calls)
    await asyncio.wait(calls)
    gc.enable()
    outcome.callers_s = time.process_time() - taken_s
    outcome.ends.update(from_rpc(error).reason or error.code().name for error in errors)
    return outcome


if __name__ == "__main__":
    main()
