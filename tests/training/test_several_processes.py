"""Servers that share a gRPC port: each counts for itself, and what they count adds up."""

import signal
import subprocess
from collections.abc import Iterator

import grpc
import pytest

from dragoman.v1.translation_pb2 import TranslateRequest, TranslateResponse
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from engine.queueing.express import EXPRESS_ROWS
from models.package.folder import Package
from tests.server_process import ROOT, WAIT_S, ServerProcess, eventually, server_command, server_process

CALLS = 64
TRANSLATE = "dragoman.v1.TranslationService/Translate"


@pytest.fixture(scope="module")
def servers(tiny_package: Package) -> Iterator[list[ServerProcess]]:
    """Two servers on one port."""
    with (
        server_process(tiny_package.folder, "--reuse-port") as one,
        server_process(tiny_package.folder, "--reuse-port", "--port", one.port) as other,
    ):
        assert one.port == other.port
        assert one.metrics_port != other.metrics_port
        yield [one, other]


def call(port: int) -> TranslateResponse:
    """A call on a connection of its own, as of a client of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        return TranslationServiceStub(channel).Translate(
            TranslateRequest(contents=["a", "b"], no_cache=True), timeout=60
        )


def refused(*arguments: object) -> str:
    """What a server says that does not start."""
    command = server_command("--metrics-port", 0, *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_calls_and_tokens_add_up(servers: list[ServerProcess]) -> None:
    answers = [call(servers[0].port) for _ in range(CALLS)]
    eventually(lambda: sum(server.metrics()("dragoman_rpc_in_flight") for server in servers) == 0)
    counts = [server.metrics() for server in servers]
    assert min(metrics("dragoman_rpc_requests_total") for metrics in counts) > 0, "one server got all connections"

    def together(name: str, **labels: str) -> float:
        return sum(metrics(name, **labels) for metrics in counts)

    translations = [translation for answer in answers for translation in answer.translations]
    assert together("dragoman_rpc_requests_total", method=TRANSLATE, code="OK") == CALLS
    assert together("dragoman_rpc_duration_seconds_count", method=TRANSLATE, code="OK") == CALLS
    assert together("dragoman_rpc_duration_seconds_bucket", method=TRANSLATE, le="+Inf") == CALLS
    assert together("dragoman_finished_total") == len(translations) == 2 * CALLS
    assert together("dragoman_target_tokens_total") == sum(each.hypotheses[0].tokens for each in translations)
    assert together("dragoman_source_tokens_total") == sum(each.source_tokens for each in translations)
    assert together("dragoman_rows_capacity") == 2 * (2 * 64 + EXPRESS_ROWS)
    assert together("dragoman_server_state", state="serving") == 2


def test_a_server_that_does_not_share_is_told_that_the_port_is_taken(
    servers: list[ServerProcess], tiny_package: Package
) -> None:
    port = servers[0].port
    assert "choose another port with --port" in refused("--package", tiny_package.folder, "--port", port)


def test_nobody_shares_the_port_of_a_server_that_does_not(tiny_package: Package) -> None:
    with server_process(tiny_package.folder) as alone:
        told = refused("--package", tiny_package.folder, "--port", alone.port, "--reuse-port")
        assert "choose another port with --port" in told


def test_what_is_left_serves_on(servers: list[ServerProcess]) -> None:
    one, other = servers
    before = other.metrics()("dragoman_rpc_requests_total")
    assert one.end(signal.SIGTERM) == 0
    for _ in range(8):
        assert len(call(other.port).translations) == 2
    assert other.metrics()("dragoman_rpc_requests_total", code="OK") == before + 8
