"""Strangers at the HTTP port of a server process: calls by others are answered, and memory stays."""

import json
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.hostile.connections.test_transport import MOST_BYTES, resident_bytes
from tests.server_process import WAIT_S, ServerProcess, eventually, server_process

ZOO = Path("models/zoo/en-pt-int8")
PATH = "/dragoman.v1.TranslationService/Translate"
BODY = json.dumps({"contents": ["A cat."], "noCache": True}).encode()
CONNECTIONS = 300
TIMEOUT_S = 6
"""A place is left after 50 ms at the soonest, and there are eight: that 300 strangers had one takes 2 s."""


@pytest.fixture(scope="module")
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server(free_port: int) -> Iterator[ServerProcess]:
    with server_process(ZOO, "--http-port", free_port, "--request-timeout-s", TIMEOUT_S) as server:
        assert is_answered(free_port)
        yield server
        assert server.end(signal.SIGTERM) == 0
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()


def is_answered(port: int) -> bool:
    """Whether a new caller is."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{PATH}", BODY, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
        return bool(json.load(answer)["translations"])


def head(length: int) -> bytes:
    kind = "content-type: application/json"
    return f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\n{kind}\r\ncontent-length: {length}\r\n\r\n".encode()


def bodies_that_stop(to: socket.socket) -> None:
    to.sendall(head(1_000_000) + b'{"contents": ["' + b"a" * 16_000)


def heads_that_stop(to: socket.socket) -> None:
    to.sendall(head(10)[:-4])


def floods_of_headers(to: socket.socket) -> None:
    to.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a:\r\n" * 20_000)


def lines_that_do_not_end(to: socket.socket) -> None:
    to.sendall(b"GET /" + b"a" * 1_000_000)


def many_requests_at_once(to: socket.socket) -> None:
    """Whose answers nobody reads."""
    to.sendall((head(len(BODY)) + BODY) * 200)


def nothing(to: socket.socket) -> None:
    """Is sent."""


@pytest.mark.parametrize(
    "send",
    [nothing, heads_that_stop, bodies_that_stop, floods_of_headers, lines_that_do_not_end, many_requests_at_once],
)
def test_others_are_answered_and_memory_stays(
    send: Callable[[socket.socket], None], server: ServerProcess, free_port: int
) -> None:
    before = resident_bytes(server)
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            stranger = opened.enter_context(socket.create_connection(("127.0.0.1", free_port), WAIT_S))
            with suppress(OSError):  # the server has had enough
                send(stranger)
        assert is_answered(free_port)
        assert resident_bytes(server) - before < MOST_BYTES
    eventually(lambda: server.metrics()("dragoman_rpc_in_flight") == 0)


def test_who_stops_is_told_so_and_cut_off(server: ServerProcess, free_port: int) -> None:
    for send, status in ((heads_that_stop, b"408"), (bodies_that_stop, b"408"), (floods_of_headers, b"431")):
        with socket.create_connection(("127.0.0.1", free_port), WAIT_S) as stranger, suppress(ConnectionError):
            send(stranger)
            told = stranger.makefile("rb").read()
            assert told.split(b" ", 2)[1] == status
