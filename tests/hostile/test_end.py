"""Life and death of a server process over the network: it ends whatever holds it, and serves again after a failure."""

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from bench.server import rolling
from bench.soak.http2 import WINDOW_SIZE, Connection, message
from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.server_process import ROOT, WAIT_S, ServerProcess, eventually, server_command, server_process

ZOO = Path("models/zoo/en-pt-int8")
WATCH = "/grpc.health.v1.Health/Watch"
FAILING = """
import sys, threading
from engine.batch.searched_rows import SearchedRows
from server.__main__ import main

end_step = SearchedRows.end_step

def fault(rows):
    tokens = max(len(one.request.source_ids) for one in rows.running)
    if tokens > 60:
        threading.Event().wait()
    if tokens > 30:
        raise RuntimeError("a kernel is broken")
    return end_step(rows)

SearchedRows.end_step = fault
sys.exit(main(sys.argv[1:]))
"""
"""A server whose engine crashes over long texts, and hangs over longer ones."""
CRASHES, HANGS = "the cat and the dog " * 8, "the cat and the dog " * 16
SOON_S = 30.0
"""More than what it has to take, on a machine that does other things too."""
pytestmark = pytest.mark.timeout(600)


def request(text: str) -> TranslateRequest:
    return TranslateRequest(contents=[text], no_cache=True)


def is_answered(server: ServerProcess) -> bool:
    """Whether a new client is, now."""
    with grpc.insecure_channel(server.target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        with suppress(grpc.RpcError):
            return bool(TranslationServiceStub(channel).Translate(request("A cat."), timeout=WAIT_S).translations)
        return False


def stalled_watch(server: ServerProcess) -> Connection:
    """Of a client that gives no room for what it watches."""
    connection = Connection(server.port, {WINDOW_SIZE: 0})
    connection.send(connection.begin(WATCH), message(HealthCheckRequest().SerializeToString()), end=True)
    return connection


def test_a_watcher_that_reads_nothing_holds_up_neither_health_nor_the_end() -> None:
    with server_process(ZOO) as server, stalled_watch(server), grpc.insecure_channel(server.target) as channel:
        health: Any = HealthStub(channel)  # whose types do not know that it has methods
        assert next(health.Watch(HealthCheckRequest(), timeout=WAIT_S)).status == HealthCheckResponse.SERVING
        assert is_answered(server)
        assert server.end(signal.SIGTERM) == 0


def test_engines_that_fail_for_good_end_the_process_whoever_watches() -> None:
    with (
        server_process(ZOO, "--engine-restarts", 0, program=FAILING) as server,
        stalled_watch(server),
        grpc.insecure_channel(server.target) as channel,
    ):
        with pytest.raises(grpc.RpcError):
            TranslationServiceStub(channel).Translate(request(CRASHES), timeout=WAIT_S)
        assert server.process.wait(WAIT_S) == 1


def test_it_serves_again_after_a_crash() -> None:
    with (
        server_process(ZOO, "--workers", 1, program=FAILING) as server,
        grpc.insecure_channel(server.target) as channel,
    ):
        with pytest.raises(grpc.RpcError):
            TranslationServiceStub(channel).Translate(request(CRASHES), timeout=WAIT_S)
        failed_s = time.monotonic()
        assert is_answered(server)
        assert time.monotonic() - failed_s < SOON_S
        assert server.metrics()("dragoman_engine_restarts_total", cause="crash") == 2
        assert server.end(signal.SIGTERM) == 0


def test_the_process_ends_though_all_engines_hang() -> None:
    with (
        server_process(ZOO, "--grace-period-s", 1, program=FAILING) as server,
        grpc.insecure_channel(server.target) as channel,
    ):
        stub = TranslationServiceStub(channel)
        hanging = [stub.Translate.future(request(HANGS + word), timeout=WAIT_S) for word in ("now", "then", "soon")]
        eventually(lambda: server.metrics()("dragoman_rpc_in_flight") == len(hanging))
        told_s = time.monotonic()
        assert server.end(signal.SIGTERM) in (0, 1)
        assert time.monotonic() - told_s < SOON_S
        for call in hanging:
            with pytest.raises(grpc.RpcError) as told:
                call.result()
            assert told.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("after_s", [0.2, 0.7, 1.2])
def test_it_ends_when_it_is_told_to_while_it_starts(after_s: float) -> None:
    command = server_command("--package", ZOO, "--port", 0, "--metrics-port", 0)
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) in (0, -signal.SIGTERM)


@pytest.mark.parametrize("how", [[], ["--kill"]])
def test_no_call_fails_while_one_server_after_the_other_goes(how: list[str]) -> None:
    assert rolling.main(["--package", str(ZOO), "--calls", "100", "--callers", "8", *how]) == 0
