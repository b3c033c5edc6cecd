"""Connections, streams and messages that are not meant to be answered: others are, and memory stays."""

import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench.soak.http2 import (
    DATA,
    END_STREAM,
    FRAME_BYTES,
    PING,
    SETTINGS,
    WINDOW_SIZE,
    Connection,
    Sender,
    frame,
    message,
)
from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from server.arrivals import MOST_MESSAGES, Messages
from server.config import Settings
from server.placement import REST_BYTES
from tests.server_process import WAIT_S, ServerProcess, eventually, server_process

TRANSLATE = "/dragoman.v1.TranslationService/Translate"
ENCODE = "/dragoman.v1.EncodingService/Encode"
CHECK = "/grpc.health.v1.Health/Check"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
REQUEST = TranslateRequest(contents=["A cat."])
MEGABYTE = 1_000_000
LARGEST = Settings.model_fields["max_message_bytes"].default
MOST_BYTES = 64 * MEGABYTE
"""What an attack may add to the server's memory."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with server_process(Path("models/zoo/en-pt")) as server:
        assert is_answered(server)
        yield server
        assert server.end(signal.SIGTERM) == 0
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()


def is_answered(server: ServerProcess) -> bool:
    """Whether a new client is."""
    with grpc.insecure_channel(server.target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        return bool(TranslationServiceStub(channel).Translate(REQUEST, timeout=WAIT_S).translations)


def facts(server: ServerProcess) -> dict[str, str]:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return dict(line.split(":", 1) for line in lines)


def resident_bytes(server: ServerProcess) -> int:
    return int(facts(server)["VmRSS"].split()[0]) * 1024


def in_flight(server: ServerProcess) -> float:
    return server.metrics()("dragoman_rpc_in_flight")


@pytest.mark.parametrize("sent", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
def test_connections_that_say_nothing(sent: bytes, server: ServerProcess) -> None:
    before = resident_bytes(server)
    with ExitStack() as opened:
        for _ in range(1000):
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port), WAIT_S)).sendall(sent)
        assert is_answered(server)
        assert resident_bytes(server) - before < MOST_BYTES
    assert is_answered(server)


def test_half_requests_to_the_metrics_port(server: ServerProcess) -> None:
    before, threads = resident_bytes(server), int(facts(server)["Threads"])
    with ExitStack() as opened:
        for _ in range(300):
            asking = opened.enter_context(socket.create_connection(("127.0.0.1", server.metrics_port), WAIT_S))
            asking.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert server.metrics()("dragoman_build_info") == 1
        assert is_answered(server)
        assert int(facts(server)["Threads"]) <= threads + 2
        assert resident_bytes(server) - before < MOST_BYTES


def test_streams_that_send_no_request(server: ServerProcess) -> None:
    before = resident_bytes(server)
    with ExitStack() as opened:
        for _ in range(2):
            connection = opened.enter_context(Connection(server.port))
            for _ in range(1000):
                connection.begin(TRANSLATE)
        assert is_answered(server)
        eventually(lambda: in_flight(server) <= MOST_MESSAGES)
        assert resident_bytes(server) - before < MOST_BYTES
    eventually(lambda: in_flight(server) == 0)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_messages_that_are_too_large(compression: grpc.Compression, server: ServerProcess) -> None:
    """Also when they are unpacked."""
    before, huge = resident_bytes(server), bytes(62 << 20)
    with grpc.insecure_channel(server.target, [("grpc.max_send_message_length", -1)]) as channel:
        call: Any = channel.unary_unary(TRANSLATE)
        sent = [call.future(huge, timeout=WAIT_S, compression=compression) for _ in range(3)]
        assert {each.exception().code() for each in sent} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert is_answered(server)
    assert resident_bytes(server) - before < MOST_BYTES


def test_answers_that_are_not_read_are_in_flight_until_their_client_leaves(server: ServerProcess) -> None:
    before = resident_bytes(server)
    request = EncodeRequest(contents=["A cat."] * 50).SerializeToString()
    with Connection(server.port, {WINDOW_SIZE: 0}) as connection:
        for _ in range(10):
            connection.send(connection.begin(ENCODE), message(request), end=True)
        eventually(lambda: server.metrics()("dragoman_rpc_requests_total", code="OK", method=ENCODE[1:]) >= 10)
        assert in_flight(server) == 10
        assert is_answered(server)
        assert resident_bytes(server) - before < MOST_BYTES
    eventually(lambda: in_flight(server) == 0)


def test_calls_that_are_reset_as_soon_as_they_are_made(server: ServerProcess) -> None:
    before, request = resident_bytes(server), message(REQUEST.SerializeToString())
    with Connection(server.port) as connection, suppress(OSError):  # the server may have had enough
        for _ in range(3000):
            number = connection.begin(TRANSLATE)
            connection.send(number, request, end=True)
            connection.reset(number)
    assert is_answered(server)
    eventually(lambda: in_flight(server) == 0)
    assert resident_bytes(server) - before < MOST_BYTES


@pytest.mark.parametrize("kind", [PING, SETTINGS])
def test_frames_that_ask_for_an_answer_each_and_a_half_one(kind: int, server: ServerProcess) -> None:
    before, one = resident_bytes(server), frame(kind, 0, 0, bytes(8) if kind == PING else b"")
    with Connection(server.port) as connection, suppress(OSError):
        for _ in range(200):
            connection.send_frames(one * 100)
        connection.send_frames(one[:5])
        assert is_answered(server)
    assert is_answered(server)
    assert resident_bytes(server) - before < MOST_BYTES


def test_headers_that_are_too_large(server: ServerProcess) -> None:
    before = resident_bytes(server)
    with Connection(server.port) as connection, suppress(OSError):
        for _ in range(100):
            connection.begin(TRANSLATE, {f"x-{number}": "v" * 100 for number in range(100)})
    assert is_answered(server)
    eventually(lambda: in_flight(server) == 0)
    assert resident_bytes(server) - before < MOST_BYTES


def test_messages_that_are_never_finished(server: ServerProcess) -> None:
    """More of them than may be slow are refused; what the window does not let in is not taken in."""
    with ExitStack() as opened:
        for _ in range(20):
            connection = opened.enter_context(Connection(server.port))
            connection.send(connection.begin(TRANSLATE), message(bytes(16_000), size=LARGEST))
        assert is_answered(server)
        refused = "dragoman_refusals_total"
        eventually(lambda: server.metrics()(refused, reason="REQUEST_STALLED") >= 20 - Messages(LARGEST).most_slow)
    eventually(lambda: in_flight(server) == 0)


@pytest.mark.parametrize(("connections", "streams"), [(8, 8), (64, 16)])
def test_messages_that_are_all_but_finished(connections: int, streams: int, server: ServerProcess) -> None:
    """However many are sent, what is there of them stays within what was set aside for them at the start."""
    before, piece = resident_bytes(server), bytes(FRAME_BYTES)
    with ExitStack() as opened:
        senders = [opened.enter_context(Sender(server.port)) for _ in range(connections)]
        left: list[dict[int, int]] = [{} for _ in senders]
        ends_s = time.monotonic() + 4
        while time.monotonic() < ends_s:
            for sender, of in zip(senders, left, strict=True):
                with suppress(OSError):
                    while len(sender.open) < streams:
                        number = sender.begin(TRANSLATE)
                        of[number] = LARGEST - 1
                        sender.offer(number, message(b"", size=LARGEST))
                    sender.receive()
                    for number in sender.open:
                        while taken := sender.offer(number, piece[: of[number]]):
                            of[number] -= taken
        assert is_answered(server)
        assert resident_bytes(server) - before < MOST_MESSAGES * Messages(LARGEST).transport_bytes + REST_BYTES
    eventually(lambda: in_flight(server) == 0)


def test_answers_that_are_not_read_are_given_up_in_time() -> None:
    request = message(EncodeRequest(contents=["A cat."] * 50).SerializeToString())
    with (
        server_process(Path("models/zoo/en-pt-int8"), "--stream-stall-timeout-s", 1) as server,
        Sender(server.port, {WINDOW_SIZE: 0}) as connection,
    ):
        for _ in range(10):
            number = connection.begin(ENCODE)
            connection.offer(number, request)
            connection.send_frames(frame(DATA, END_STREAM, number))
        answered = "dragoman_rpc_requests_total"
        eventually(lambda: server.metrics()(answered, code="OK", method=ENCODE[1:]) >= 10)
        eventually(lambda: in_flight(server) == 0)
        assert is_answered(server)


@pytest.mark.parametrize("method", [TRANSLATE, CHECK, REFLECT])
def test_bytes_of_any_kind(method: str, server: ServerProcess) -> None:
    random_bytes = random.Random(7)
    with grpc.insecure_channel(server.target) as channel:
        call: Any = channel.stream_stream(method) if method == REFLECT else channel.unary_unary(method)
        for _ in range(200):
            data = random_bytes.randbytes(random_bytes.randrange(60))
            try:
                list(call(iter([data]), timeout=WAIT_S)) if method == REFLECT else call(data, timeout=WAIT_S)
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), data
    assert is_answered(server)
