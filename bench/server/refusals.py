"""`python -m bench.server.refusals`: what a refused call takes of the server's event loop. See docs/benchmarks.md.

The caller has used up its quota, so the server computes nothing while it refuses. A bare handler of gRPC's that does
nothing but abort is the floor. The sides take turns, and the processor's time of their threads is told, not a clock's.
"""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import uvloop
from grpc import aio

from bench.flags.values import package_at, whole
from bench.process import free_port, leave_at_sigterm, serving
from bench.sentences import english
from dragoman.quickstart import HOST
from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

ROOT = Path(__file__).parents[2]
CONTENTS = 4
"""Of a call."""
TOGETHER = 16
"""Calls that are kept open."""
DEADLINE_S = 10.0
QUOTA = "0.0001"
"""Texts a second: the first call is let in, and the next one in some hours."""
START_S = 30.0


class Floor(grpc.GenericRpcHandler):
    """Refuses whatever comes, without a look at it."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of every method."""
        return grpc.unary_unary_rpc_method_handler(refuse)


async def refuse(request: bytes, context: "aio.ServicerContext[bytes, bytes]") -> None:
    """Ends the call."""
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no")


async def floor(port: int) -> None:
    """Serves until the process is ended."""
    server = aio.server()
    server.add_generic_rpc_handlers([Floor()])
    server.add_insecure_port(f"{HOST}:{port}")
    await server.start()
    await server.wait_for_termination()


@contextmanager
def floor_process() -> Iterator[tuple[str, int]]:
    """Its target and process id."""
    leave_at_sigterm()
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.server.refusals", "--floor", str(port)])
    try:
        yield f"{HOST}:{port}", process.pid
    finally:
        process.terminate()
        process.wait()


def thread_seconds(pid: int) -> dict[int, float]:
    """The processor's time of each thread so far, as the scheduler has it."""
    return {
        int(task.name): int((task / "schedstat").read_text().split()[0]) / 1e9
        for task in Path(f"/proc/{pid}/task").iterdir()
    }


async def refused(stub: TranslationServiceStub, asked: TranslateRequest, calls: int) -> None:
    """So many calls, which are all refused. Raises AssertionError for one that is not."""
    left = iter(range(calls))

    async def call() -> None:
        for _ in left:
            try:
                await stub.Translate(asked, timeout=DEADLINE_S)  # type: ignore[misc]  # the stub is asyncio's
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, error
            else:
                raise AssertionError("a call was answered")

    await asyncio.gather(*(call() for _ in range(TOGETHER)))


async def measure(sides: Sequence[tuple[str, str, int]], calls: int, turns: int) -> None:
    """Prints each side's microseconds a call. sides: name, target and process id."""
    asked = TranslateRequest(contents=english(CONTENTS))
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(aio.insecure_channel(target)) for _, target, _ in sides]
        stubs = [TranslationServiceStub(channel) for channel in channels]
        for stub in stubs:
            await use_up(stub, asked)
            await refused(stub, asked, calls)  # warms up
        loops, every = {name: list[float]() for name, _, _ in sides}, {name: list[float]() for name, _, _ in sides}
        for _ in range(turns):
            for stub, (name, _, pid) in zip(stubs, sides, strict=True):
                before = thread_seconds(pid)
                await refused(stub, asked, calls)
                after = thread_seconds(pid)
                loops[name].append((after[pid] - before[pid]) / calls * 1e6)
                every[name].append((sum(after.values()) - sum(before.values())) / calls * 1e6)
    print("| side | event loop, us a call: median, least to most | all threads |\n|---|---|---|")
    for name, took in loops.items():
        print(f"| {name} | {median(took):.0f}, {min(took):.0f} to {max(took):.0f} | {median(every[name]):.0f} |")


async def use_up(stub: TranslationServiceStub, asked: TranslateRequest) -> None:
    """The first call, for which the quota is enough. It waits for a side that has just been started."""
    try:
        await stub.Translate(asked, timeout=START_S, wait_for_ready=True)  # type: ignore[misc]  # the stub is asyncio's
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, error


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.refusals", description=__doc__)
    parser.add_argument(
        "--package", type=package_at, default=ROOT / "models" / "zoo" / "en-pt-int8", help="what is served"
    )
    parser.add_argument("--calls", type=whole, default=300, help="of each side at each turn")
    parser.add_argument("--turns", type=whole, default=30, help="of each side")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="other checkouts, which are measured, too")
    parser.add_argument("--floor", type=int, metavar="PORT", help="serve there as the floor, and measure nothing")
    arguments = parser.parse_args()
    if arguments.floor is not None:
        return uvloop.run(floor(arguments.floor))
    with ExitStack() as stack:
        sides = [("floor", *stack.enter_context(floor_process()))]
        for checkout in (ROOT, *arguments.beside):
            settings = ["--package", str(arguments.package.resolve()), "--quota-texts-per-s", QUOTA]
            server = stack.enter_context(serving("server", settings, folder=checkout))
            sides.append((checkout.name, server.target, server.pid))
        uvloop.run(measure(sides, arguments.calls, arguments.turns))


if __name__ == "__main__":
    main()
