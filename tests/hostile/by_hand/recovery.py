"""`python -m tests.hostile.by_hand.recovery`: how long a server needs after a crash, to see a hang, and to end.

Asked are 2 s, 15 s, and the grace period and 3 s, though all engines hang.
"""

import argparse
import signal
import time
from contextlib import suppress

import grpc

from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.hostile.test_end import CRASHES, FAILING, HANGS, ZOO, request
from tests.server_process import WAIT_S, ServerProcess, eventually, server_process

GRACE_S = 1.0


def until_answered(server: ServerProcess, cause: str, text: str) -> tuple[float, float]:
    """Seconds until an engine that fails over a text has begun anew, and from then until another one is answered."""
    with grpc.insecure_channel(server.target) as channel:
        stub = TranslationServiceStub(channel)
        before = server.metrics()("dragoman_engine_restarts_total", cause=cause)
        began_s = time.monotonic()
        failing = stub.Translate.future(request(text), timeout=WAIT_S)
        eventually(lambda: server.metrics()("dragoman_engine_restarts_total", cause=cause) > before)
        noticed_s = time.monotonic()
        failing.cancel()
        while True:
            with suppress(grpc.RpcError):
                stub.Translate(request("A cat."), timeout=WAIT_S)
                return noticed_s - began_s, time.monotonic() - noticed_s


def end_s(server: ServerProcess, calls: int) -> float:
    """Seconds from SIGTERM until the process is gone, while calls hang in every engine."""
    with grpc.insecure_channel(server.target) as channel:
        stub = TranslationServiceStub(channel)
        hanging = [stub.Translate.future(request(f"{HANGS}{number}"), timeout=WAIT_S) for number in range(calls)]
        eventually(lambda: server.metrics()("dragoman_rpc_in_flight") == len(hanging))
        began_s = time.monotonic()
        server.end(signal.SIGTERM)
        return time.monotonic() - began_s


def main() -> None:
    """Command line."""
    argparse.ArgumentParser(prog="python -m tests.hostile.by_hand.recovery", description=__doc__).parse_args()
    for cause, text in (("crash", CRASHES), ("hang", HANGS)):
        with server_process(ZOO, "--workers", 1, program=FAILING) as server:
            noticed_s, served_s = until_answered(server, cause, text)
        print(f"{cause}: engine begun anew after {noticed_s:.1f} s, and serving {served_s:.1f} s later", flush=True)
    with server_process(ZOO, "--grace-period-s", GRACE_S, program=FAILING) as server:
        print(f"all engines hang: gone {end_s(server, 3):.1f} s after SIGTERM, with a grace period of {GRACE_S:g} s")


if __name__ == "__main__":
    main()
