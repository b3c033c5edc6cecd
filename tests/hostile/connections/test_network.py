"""Between client and server the network fails: what can be answered is, nobody else waits, and nothing is left."""

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import run

import pytest

from dragoman import Client
from dragoman.errors import DeadlineExceeded, Unavailable
from tests.hostile.connections.proxy import Proxy, proxy
from tests.server_process import ROOT, WAIT_S, ServerProcess, eventually, server_process

ZOO = Path("models/zoo/en-pt-int8")
TEXTS = [f"The {number} cats are in the house." for number in range(40)]
FORKING = """
import os, sys
from dragoman import Client

with Client(sys.argv[1]) as client:
    before = client.translate("A cat.").text
    child = os.fork()
    if not child:
        with Client(sys.argv[1]) as own:
            os._exit(0 if own.translate("A cat.").text == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.translate("A cat.").text == before
"""
"""A program that has made a call, and forks: its child has a client of its own."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with server_process(ZOO) as server:
        yield server
        assert server.end(signal.SIGTERM) == 0
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()


@pytest.fixture
def network(server: ServerProcess) -> Iterator[Proxy]:
    with proxy(server.port) as network:
        yield network
    eventually(lambda: server.metrics()("dragoman_rpc_in_flight") == 0)


@pytest.fixture(scope="module")
def alone(server: ServerProcess) -> list[str]:
    """What the texts are translated to."""
    with Client(server.target) as client:
        return [client.translate(text).text for text in TEXTS]


def target(network: Proxy) -> str:
    return f"127.0.0.1:{network.port}"


def test_a_network_that_falls_silent_costs_the_calls_of_that_time_alone(server: ServerProcess, network: Proxy) -> None:
    with Client(target(network)) as client, Client(server.target) as other:
        before = client.translate("A cat.").text
        network.part()
        with pytest.raises(DeadlineExceeded):
            client.translate("A cat.", timeout_s=0.5, no_cache=True)
        assert other.translate("A cat.", no_cache=True).text == before
        network.heal()
        assert client.translate("A cat.", timeout_s=WAIT_S, no_cache=True).text == before


def test_connections_that_are_cut_off_cost_no_call(network: Proxy, alone: list[str]) -> None:
    """Each brings some answers, and then no more: the client makes another one."""
    network.reset_after = 2000
    with Client(target(network)) as client, ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda text: client.translate(text, timeout_s=WAIT_S, no_cache=True).text, TEXTS)
        assert list(found) == alone
    assert network.connections > 3


def test_a_stream_that_is_cut_off_is_not_taken_for_whole(network: Proxy) -> None:
    with Client(target(network)) as client:
        assert list(client.stream_translate(" ".join(TEXTS), timeout_s=WAIT_S, no_cache=True))
    network.reset_after = network.bytes_back // 2
    with Client(target(network)) as client, pytest.raises(Unavailable):
        list(client.stream_translate(" ".join(TEXTS), timeout_s=WAIT_S, no_cache=True))


def test_a_slow_network_slows_its_own_caller_alone(server: ServerProcess, network: Proxy, alone: list[str]) -> None:
    network.bytes_per_s, network.piece_bytes = 2_000, 1_000  # all that comes back takes twenty seconds
    with Client(target(network)) as client, Client(server.target) as other, ThreadPoolExecutor(1) as pool:
        vectors = pool.submit(client.encode, TEXTS, timeout_s=WAIT_S)
        eventually(lambda: network.bytes_back > 0)
        assert [other.translate(text, no_cache=True).text for text in TEXTS[:8]] == alone[:8]
        assert not vectors.done()
        network.bytes_per_s = None
        assert len(vectors.result(WAIT_S)) == len(TEXTS)


def test_a_long_network_that_brings_messages_in_parts_changes_no_answer(network: Proxy, alone: list[str]) -> None:
    network.delay_s, network.piece_bytes = 0.02, 50
    with Client(target(network)) as client:
        assert [one.text for one in client.translate(TEXTS[:4], timeout_s=WAIT_S, no_cache=True)] == alone[:4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_client_has_its_own(server: ServerProcess) -> None:
    done = run([sys.executable, "-c", FORKING, server.target], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
