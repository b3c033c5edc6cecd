"""`python -m tests.hostile.by_hand.budget`: under each attack, the most memory a server had, beside its budget.

Each attack has a server of its own, with one worker, and comes from one address. Exit code 1 where one went over.
"""

import argparse
import multiprocessing
import os
import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bench.process import free_port
from bench.soak import strangers
from dragoman.quickstart import HOST
from dragoman.v1.decoding_pb2 import EARLY_STOPPING_NEVER, DecodingOptions
from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.hostile.by_hand.connections import KINDS, LARGEST, MEGABYTE, OTHER_HOST, ZOO, Attack, resident_bytes
from tests.hostile.connections import http_attacks
from tests.hostile.connections.attacks import seconds
from tests.hostile.connections.http_attacks import pour
from tests.server_process import ServerProcess, server_process

ENDLESS = DecodingOptions(
    num_beams=16, num_return_sequences=16, length_penalty=10, early_stopping=EARLY_STOPPING_NEVER, max_new_tokens=512
)
LONGEST = [f"{number} " + "a " * 500 for number in range(64)]
"""Texts of some 500 tokens, no two of them equal."""
STRANGERS = {attack.__name__: attack for attack in strangers.ATTACKS}


@dataclass(frozen=True)
class Target:
    """A server, for another process."""

    port: int
    metrics_port: int
    http_port: int


Make = Callable[[Target, Callable[[], bool]], None]


def many(kind: str, connections: int, calls: int) -> Make:
    """One of `tests.hostile.by_hand.connections`."""
    return lambda server, over: getattr(Attack(server, connections, calls, LARGEST, OTHER_HOST), kind)(over)


def by_http(kind: str, connections: int) -> Make:
    """One at the HTTP port."""
    return lambda server, over: pour(server.http_port, connections, http_attacks.ATTACKS[kind], over, OTHER_HOST)


def often(kind: str) -> Make:
    """One of the soak's, again and again; each time its connections are left."""

    def make(server: Target, over: Callable[[], bool]) -> None:
        draw = random.Random(kind)
        while not over():
            with ExitStack() as opened, suppress(OSError):
                STRANGERS[kind](server, draw, opened)

    return make


def largest_work(server: Target, over: Callable[[], bool]) -> None:
    """The longest texts, the widest searches, and vectors, which are all allowed."""
    with grpc.insecure_channel(f"{HOST}:{server.port}") as channel:
        translate, encode = TranslationServiceStub(channel).Translate, EncodingServiceStub(channel).Encode
        searches = TranslateRequest(contents=LONGEST, decoding=ENDLESS)
        while not over():
            calls: list[Any] = [translate.future(searches), translate.future(TranslateRequest(contents=LONGEST))]
            calls += [encode.future(EncodeRequest(contents=LONGEST)) for _ in range(2)]
            while not (over() or all(call.done() for call in calls)):
                with suppress(grpc.FutureTimeoutError, grpc.RpcError):
                    calls[0].exception(timeout=0.2)
            for call in calls:
                call.cancel()


def attacks(connections: int, calls: int) -> Mapping[str, Make]:
    """All that is known, by name."""
    known = {kind: many(kind, connections, calls) for kind in KINDS}
    known |= {f"http_{kind}": by_http(kind, connections) for kind in http_attacks.ATTACKS}
    return known | {kind: often(kind) for kind in STRANGERS} | {"largest_work": largest_work}


def run(kind: str, connections: int, calls: int, server: Target, most_s: float) -> None:
    """In a process of its own."""
    os.nice(19)
    with suppress(OSError):  # the server has had enough
        attacks(connections, calls)[kind](server, seconds(most_s))


def most_resident_bytes(server: ServerProcess) -> int:
    """The largest that the process has been."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(kilobytes) * 1024


def attacked(kind: str, args: argparse.Namespace) -> bool:
    """Prints a row of the table. Returns whether the server stayed within its budget."""
    http_port = free_port()
    with server_process(args.package, "--workers", 1, "--http-port", http_port, *args.server) as server:
        budget, before = server.metrics()("dragoman_memory_bytes", kind="budget"), resident_bytes(server)
        Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # the most from now on: loading took more
        process = multiprocessing.get_context("spawn").Process(
            target=run,
            args=(
                kind,
                args.connections,
                args.calls,
                Target(server.port, server.metrics_port, http_port),
                args.seconds,
            ),
        )
        process.start()
        process.join()
        assert not process.exitcode and server.process.poll() is None, f"{kind}: {process.exitcode}, {server.process}"
        most = most_resident_bytes(server)
    within = most <= budget
    numbers = " | ".join(f"{size / MEGABYTE:.0f}" for size in (budget, before, most))
    print(f"| {kind.replace('_', ' ')} | {numbers} | {'under' if within else 'OVER'} |", flush=True)
    return within


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.by_hand.budget", description=__doc__)
    known = tuple(attacks(1, 1))
    parser.add_argument("--attack", action="append", choices=known, help="may be repeated (default: each)")
    parser.add_argument("--package", type=Path, default=ZOO, help="what is served (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=1000, metavar="N", help="(default: %(default)d)")
    parser.add_argument("--calls", type=int, default=1, metavar="N", help="of each connection (default: %(default)d)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each (default: %(default)g)")
    parser.add_argument("server", nargs="*", help="more arguments of the server, after --")
    args = parser.parse_args()
    print("| attack | budget, MB | before | at most | |\n|---|---|---|---|---|", flush=True)
    within = [attacked(kind, args) for kind in args.attack or known]
    raise SystemExit(0 if all(within) else 1)


if __name__ == "__main__":
    main()
