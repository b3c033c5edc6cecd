"""Connections that nobody means well with: they are opened, kept for a while, and left."""

import asyncio
import random
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Protocol

from bench.soak.http2 import FRAME_BYTES, PING, PREFACE, SETTINGS, WINDOW_SIZE, Connection, frame, message
from dragoman.quickstart import HOST
from dragoman.v1.translation_pb2 import TranslateRequest

TRANSLATE = "/dragoman.v1.TranslationService/Translate"
METHODS = (TRANSLATE, "/dragoman.v1.EncodingService/Encode", "/grpc.health.v1.Health/Watch", "/no.Service/Nothing")
WAIT_S = 60.0
KEPT_S = 3.0
"""At most."""


class Server(Protocol):
    """Of this machine."""

    @property
    def port(self) -> int: ...

    @property
    def metrics_port(self) -> int: ...


def silence(server: Server, draw: random.Random, opened: ExitStack) -> None:
    """Connections that say nothing, or half a greeting, or anything."""
    for _ in range(draw.randint(1, 100)):
        sent = draw.choice((b"", PREFACE, draw.randbytes(draw.randint(1, 200))))
        opened.enter_context(socket.create_connection((HOST, server.port), WAIT_S)).sendall(sent)


def streams_without_a_request(server: Server, draw: random.Random, opened: ExitStack) -> None:
    connection = opened.enter_context(Connection(server.port))
    for _ in range(draw.randint(1, 300)):
        connection.begin(draw.choice(METHODS))


def messages_without_an_end(server: Server, draw: random.Random, opened: ExitStack) -> None:
    for _ in range(draw.randint(1, 8)):
        connection = opened.enter_context(Connection(server.port))
        connection.send(connection.begin(TRANSLATE), message(bytes(50_000), size=draw.choice((3 << 20, 1 << 31))))


def answers_that_are_not_read(server: Server, draw: random.Random, opened: ExitStack) -> None:
    connection = opened.enter_context(Connection(server.port, {WINDOW_SIZE: 0}))
    request = TranslateRequest(contents=["A cat."] * 50).SerializeToString()
    for _ in range(draw.randint(1, 20)):
        connection.send(connection.begin(TRANSLATE), message(request), end=True)


def bytes_of_any_kind(server: Server, draw: random.Random, opened: ExitStack) -> None:
    connection = opened.enter_context(Connection(server.port))
    for _ in range(draw.randint(1, 50)):
        connection.send(connection.begin(draw.choice(METHODS)), message(draw.randbytes(draw.randint(1, 500))), end=True)
    connection.send_frames(draw.randbytes(100))


def calls_that_are_reset(server: Server, draw: random.Random, opened: ExitStack) -> None:
    connection = opened.enter_context(Connection(server.port))
    request = message(TranslateRequest(contents=["A cat."]).SerializeToString())
    for _ in range(draw.randint(1, 300)):
        number = connection.begin(TRANSLATE)
        connection.send(number, request, end=True)
        connection.reset(number)


def frames_that_ask_for_an_answer(server: Server, draw: random.Random, opened: ExitStack) -> None:
    connection = opened.enter_context(Connection(server.port))
    connection.send_frames(draw.choice((frame(PING, 0, 0, bytes(8)), frame(SETTINGS, 0, 0))) * draw.randint(1, 1000))
    connection.send_frames(frame(0, 0, 1, bytes(FRAME_BYTES))[: draw.randint(1, FRAME_BYTES)])


def half_requests_for_metrics(server: Server, draw: random.Random, opened: ExitStack) -> None:
    for _ in range(draw.randint(1, 100)):
        asking = opened.enter_context(socket.create_connection((HOST, server.metrics_port), WAIT_S))
        asking.sendall(draw.choice((b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\n\r\n", b"\xff" * 5000)))


ATTACKS = (
    silence,
    streams_without_a_request,
    messages_without_an_end,
    answers_that_are_not_read,
    bytes_of_any_kind,
    calls_that_are_reset,
    frames_that_ask_for_an_answer,
    half_requests_for_metrics,
)


async def attack(server: Server, seed: int, over: Callable[[], bool]) -> int:
    """One attack after the other until it is over. Returns how many there were."""
    draw, count = random.Random(seed), 0
    while not over():
        with ExitStack() as opened:
            with suppress(OSError):  # the server has had enough
                await asyncio.to_thread(draw.choice(ATTACKS), server, draw, opened)
            await asyncio.sleep(draw.uniform(0, KEPT_S))
        count += 1
    return count
