"""What strangers send to the HTTP port to take up a server's memory."""

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

from dragoman.quickstart import HOST

PATH = "/dragoman.v1.TranslationService/Translate"
STREAM = "/v1/translate:stream"
BODY = json.dumps({"contents": ["A cat."], "noCache": True}).encode()
STREAMED = json.dumps({"content": "Good morning.", "noCache": True}).encode()


def head(length: int, path: str = PATH) -> bytes:
    kind = "content-type: application/json"
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{kind}\r\ncontent-length: {length}\r\n\r\n".encode()


ATTACKS: Mapping[str, bytes] = {
    "nothing": b"",
    "heads_that_stop": head(10)[:-4],
    "bodies_that_stop": head(1_000_000) + b'{"contents": ["' + b"a" * 16_000,
    "bodies_without_an_end": head(2_000_000) + b'{"contents": ["' + b"a" * 1_900_000,
    "floods_of_headers": b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a:\r\n" * 20_000,
    "lines_that_do_not_end": b"GET /" + b"a" * 1_000_000,
    "many_requests_at_once": (head(len(BODY)) + BODY) * 200,
    "streams_that_nobody_reads": (head(len(STREAMED), STREAM) + STREAMED) * 16,
}
"""What each connection says. None of them reads."""


def pour(port: int, connections: int, payload: bytes, over: Callable[[], bool], source: str = HOST) -> None:
    """So many say it, each as fast as it is taken; those that the server has closed come again."""
    opened: list[tuple[socket.socket, memoryview] | None] = [None] * connections
    try:
        while not over():
            for place, one in enumerate(opened):
                try:
                    opened[place] = _go_on(*(one or (_connect(port, source), memoryview(payload))))
                except OSError:  # closed
                    if one is not None:
                        one[0].close()
                    opened[place] = None
    finally:
        for one in opened:
            if one is not None:
                one[0].close()


def _connect(port: int, source: str) -> socket.socket:
    stranger = socket.create_connection((HOST, port), 60, (source, 0))
    stranger.setblocking(False)
    return stranger


def _go_on(stranger: socket.socket, left: memoryview) -> tuple[socket.socket, memoryview]:
    """Raises OSError where the server has closed it."""
    with suppress(BlockingIOError):
        if left:
            return stranger, left[stranger.send(left) :]
        if not stranger.recv(1, socket.MSG_PEEK):  # an answer stays unread
            raise ConnectionError("closed")
    return stranger, left
