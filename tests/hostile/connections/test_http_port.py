"""Strangers at the HTTP port of a server process: calls by others are answered, and memory stays."""

import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bench.process import free_port
from tests.hostile.connections.http_attacks import ATTACKS, BODY, PATH
from tests.hostile.connections.test_transport import MOST_BYTES, resident_bytes
from tests.server_process import WAIT_S, ServerProcess, eventually, server_process

ZOO = Path("models/zoo/en-pt-int8")
CONNECTIONS = 300
SENDING_S = 0.02
TIMEOUT_S = 6
"""A place is left after 50 ms at the soonest, and there are eight: that 300 strangers had one takes 2 s."""


@pytest.fixture(scope="module")
def http_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(http_port: int) -> Iterator[ServerProcess]:
    with server_process(ZOO, "--http-port", http_port, "--request-timeout-s", TIMEOUT_S) as server:
        assert is_answered(http_port)
        yield server
        assert server.end(signal.SIGTERM) == 0
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()


def is_answered(port: int) -> bool:
    """Whether a new caller is."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{PATH}", BODY, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
        return bool(json.load(answer)["translations"])


@pytest.mark.parametrize("attack", ATTACKS)
def test_others_are_answered_and_memory_stays(attack: str, server: ServerProcess, http_port: int) -> None:
    before = resident_bytes(server)
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            stranger = opened.enter_context(socket.create_connection(("127.0.0.1", http_port), WAIT_S))
            stranger.settimeout(SENDING_S)
            with suppress(OSError):  # the server has had enough, or takes no more for now
                stranger.sendall(ATTACKS[attack])
        assert is_answered(http_port)
        assert resident_bytes(server) - before < MOST_BYTES
    eventually(lambda: server.metrics()("dragoman_rpc_in_flight") == 0)


def test_who_stops_is_told_so_and_cut_off(server: ServerProcess, http_port: int) -> None:
    for attack, status in (("heads_that_stop", b"408"), ("bodies_that_stop", b"408"), ("floods_of_headers", b"431")):
        with socket.create_connection(("127.0.0.1", http_port), WAIT_S) as stranger, suppress(ConnectionError):
            stranger.sendall(ATTACKS[attack])
            told = stranger.makefile("rb").read()
            assert told.split(b" ", 2)[1] == status
