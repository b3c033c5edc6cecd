"""Life and death of a server process over the network: it ends whatever holds it, and serves again after a failure."""

import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
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

end_steps = SearchedRows.end_steps

def fault(rows, *given):
    tokens = max(len(one.request.source_ids) for one in rows.running)
    if tokens > 60:
        threading.Event().wait()
    if tokens > 30:
        raise RuntimeError("a kernel is broken")
    return end_steps(rows, *given)

SearchedRows.end_steps = fault
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


@pytest.mark.parametrize("beside", ["nothing", "another model", "a watcher and a collector that do not answer"])
def test_the_process_ends_though_all_engines_hang(beside: str) -> None:
    """All waits on the way out have one deadline: however many there are, it is not reached."""
    with ExitStack() as opened:
        arguments: list[object] = ["--grace-period-s", 1]
        if beside == "another model":
            arguments += ["--package", "models/zoo/pt-en"]
        elif beside != "nothing":
            deaf = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            arguments += ["--otlp-endpoint", f"http://127.0.0.1:{deaf.getsockname()[1]}"]
        server = opened.enter_context(server_process(ZOO, *arguments, program=FAILING))
        channel = opened.enter_context(grpc.insecure_channel(server.target))
        stub = TranslationServiceStub(channel)
        asked = [request(HANGS + word) for word in ("now", "then", "soon")]
        if beside == "another model":
            asked += [TranslateRequest(contents=one.contents, source_language_code="pt") for one in asked]
        elif beside != "nothing":
            opened.enter_context(stalled_watch(server))
        hanging = [stub.Translate.future(one, timeout=WAIT_S) for one in asked]
        eventually(lambda: server.metrics()("dragoman_rpc_in_flight") == len(hanging))
        told_s = time.monotonic()
        assert server.end(signal.SIGTERM) == 0
        assert time.monotonic() - told_s < SOON_S
        for call in hanging:
            with pytest.raises(grpc.RpcError) as told:
                call.result()
            assert told.value.code() is grpc.StatusCode.UNAVAILABLE


STAYING = """
import sys, threading
from server.__main__ import main
threading.Thread(target=threading.Event().wait).start()
sys.exit(main(sys.argv[1:]))
"""
"""A server with a thread that the interpreter's own end would wait for."""


def test_the_process_ends_though_a_thread_stays() -> None:
    with server_process(ZOO, program=STAYING) as server:
        assert is_answered(server)
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("after_s", [0.2, 0.7, 1.2])
def test_it_ends_when_it_is_told_to_while_it_starts(after_s: float) -> None:
    command = server_command("--package", ZOO, "--port", 0, "--metrics-port", 0, "--no-http")
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) in (0, -signal.SIGTERM)


IMPORTING = """
import os, signal, sys, threading
from server import __main__ as server, command

def load(arguments):
    os.kill(os.getpid(), signal.Signals[sys.argv[1]])
    threading.Event().wait()

for number in signal.SIGTERM, signal.SIGINT:
    signal.signal(number, signal.SIG_IGN)
command.load_settings = load
sys.exit(server.main([]))
"""
"""A server that is told to end before it has come to anything, as the first process of a container."""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_the_first_process_of_a_container_ends_while_it_starts(name: str) -> None:
    assert subprocess.run([sys.executable, "-c", IMPORTING, name], cwd=ROOT, timeout=WAIT_S).returncode == 0


@pytest.mark.parametrize("how", [[], ["--kill"]])
def test_no_call_fails_while_one_server_after_the_other_goes(how: list[str]) -> None:
    assert rolling.main(["--package", str(ZOO), "--calls", "100", "--callers", "8", *how]) == 0
