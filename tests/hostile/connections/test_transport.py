"""Connections, streams and messages that are not meant to be answered: others are, and memory stays."""

import random
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench.soak.http2 import (
    DATA,
    END_STREAM,
    PING,
    SETTINGS,
    WINDOW_SIZE,
    Connection,
    frame,
    message,
)
from dragoman import Client
from dragoman.errors import ResourceExhausted, from_rpc
from dragoman.v1.decoding_pb2 import EARLY_STOPPING_NEVER, DecodingOptions
from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.translation_pb2 import StreamTranslateRequest, TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from engine.devices.memory import memory_limit
from server.config import Settings
from server.placement import REST_BYTES
from server.traffic.bounds import MOST_WATCHERS, MOST_WATCHERS_OF_ONE, WINDOW_BYTES, Bounds
from tests.hostile.connections.attacks import LIST_MODELS, TRANSLATE, WATCH, all_but_finished, seconds, streams, unread
from tests.hostile.connections.sender import Sender
from tests.server_process import WAIT_S, ServerProcess, eventually, server_process

STREAM = "/dragoman.v1.TranslationService/StreamTranslate"
ENCODE = "/dragoman.v1.EncodingService/Encode"
CHECK = "/grpc.health.v1.Health/Check"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
REQUEST = TranslateRequest(contents=["A cat."])
REQUEST_OF_STREAM = StreamTranslateRequest(content="Good morning.").SerializeToString()
ENDLESS = DecodingOptions(
    num_beams=16, num_return_sequences=16, length_penalty=10, early_stopping=EARLY_STOPPING_NEVER, max_new_tokens=512
)
MEGABYTE = 1_000_000
LARGEST = Settings.model_fields["max_message_bytes"].default
ZOO = Path("models/zoo/en-pt")
BOUNDS = Bounds.within(Settings(package=(ZOO,), http=False), memory_limit())
MOST_BYTES = 64 * MEGABYTE
"""What an attack may add to the server's memory."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with server_process(ZOO) as server:
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


def open_files(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def resident_bytes(server: ServerProcess) -> int:
    return int(facts(server)["VmRSS"].split()[0]) * 1024


def set_aside(*parts: str) -> int:
    """Bytes that the budget has for these."""
    return sum(BOUNDS.parts[part] for part in parts) + REST_BYTES


def stalled(server: ServerProcess) -> float:
    return server.metrics()("dragoman_refusals_total", reason="REQUEST_STALLED")


def in_flight(server: ServerProcess) -> float:
    return server.metrics()("dragoman_rpc_in_flight")


@pytest.mark.parametrize("sent", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
def test_connections_that_say_nothing(sent: bytes, server: ServerProcess) -> None:
    before, files = resident_bytes(server), open_files(server)
    with ExitStack() as opened:
        for _ in range(1000):
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port), WAIT_S)).sendall(sent)
        assert is_answered(server)
        assert resident_bytes(server) - before < MOST_BYTES
    assert is_answered(server)
    eventually(lambda: open_files(server) < files + 100)  # what comes next finds room


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
        eventually(lambda: in_flight(server) <= BOUNDS.messages)
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
    before = stalled(server)
    with ExitStack() as opened:
        for _ in range(20):
            connection = opened.enter_context(Connection(server.port))
            connection.send(connection.begin(TRANSLATE), message(bytes(WINDOW_BYTES - 100), size=LARGEST))
        assert is_answered(server)
        eventually(lambda: stalled(server) - before >= 20 - BOUNDS.slow_messages)
    eventually(lambda: in_flight(server) == 0)


@pytest.mark.parametrize(("connections", "each"), [(8, 8), (64, 16), (1000, 2)])
def test_messages_that_are_all_but_finished(connections: int, each: int, server: ServerProcess) -> None:
    """However many are sent, what is there of them stays within what was set aside for them at the start."""
    before = resident_bytes(server)
    all_but_finished(server.port, connections, each, LARGEST, seconds(4))
    assert is_answered(server)
    assert resident_bytes(server) - before < set_aside("connections", "calls", "messages")
    eventually(lambda: in_flight(server) == 0)


def test_calls_that_come_faster_than_they_are_taken_up(server: ServerProcess) -> None:
    before = resident_bytes(server)
    with streams(server.port, 16, 1000):
        assert resident_bytes(server) - before < set_aside("connections", "calls")
        with Client(server.target) as client:  # makes calls again that gRPC has cancelled
            assert client.translate("A cat.", timeout_s=WAIT_S).text
    eventually(lambda: in_flight(server) == 0)


@pytest.mark.parametrize("method", [LIST_MODELS, STREAM])
def test_small_answers_that_nobody_reads(method: str, server: ServerProcess) -> None:
    """Each takes a call, too."""
    before = resident_bytes(server)
    request = REQUEST_OF_STREAM if method == STREAM else b""
    with unread(server.port, 2500, method, request):
        eventually(lambda: server.metrics()("dragoman_rpc_requests_total", method=method[1:]) >= 1500)
        assert is_answered(server)
        assert resident_bytes(server) - before < set_aside("connections", "calls", "answers")
    eventually(lambda: in_flight(server) == 0)


def test_requests_that_are_large_while_they_are_answered(server: ServerProcess) -> None:
    """By fields that the server does not know, which a parsed message keeps. Others are let in beside them."""
    junk = b"\xfa\x07\x80\x80\x08" + bytes(1 << 17)
    request = TranslateRequest(contents=["The cat. " * 30], decoding=ENDLESS).SerializeToString() + junk
    before = server.metrics()("dragoman_refusals_total", reason="REQUESTS_TOO_LARGE")
    with grpc.insecure_channel(server.target) as channel:
        call: Any = channel.unary_unary(TRANSLATE)
        asked = [call.future(request + b"\xf8\x07" + bytes([number]), timeout=WAIT_S) for number in range(64)]
        eventually(lambda: server.metrics()("dragoman_refusals_total", reason="REQUESTS_TOO_LARGE") > before)
        assert is_answered(server)
        for one in asked:
            one.cancel()
    eventually(lambda: in_flight(server) == 0)


def test_watchers_have_an_end_and_probes_are_answered(server: ServerProcess) -> None:
    with ExitStack() as opened:
        channels = [
            opened.enter_context(grpc.insecure_channel(server.target, [("grpc.use_local_subchannel_pool", 1)]))
            for _ in range(MOST_WATCHERS // MOST_WATCHERS_OF_ONE + 1)
        ]
        told: list[Any] = []
        for channel in channels:
            watch: Any = channel.unary_stream(WATCH)
            watchers = [watch(b"", timeout=WAIT_S) for _ in range(MOST_WATCHERS_OF_ONE + 1)]
            told += [first(watcher) for watcher in watchers]
            for watcher in watchers:
                opened.callback(watcher.cancel)
        refused = [one for one in told if isinstance(one, ResourceExhausted)]
        assert len(told) - len(refused) == MOST_WATCHERS
        assert {one.metadata["max_watchers"] for one in refused} == {str(MOST_WATCHERS), str(MOST_WATCHERS_OF_ONE)}
        check: Any = channels[0].unary_unary(CHECK)
        assert check(b"", timeout=WAIT_S)


def first(watcher: Any) -> Any:
    """What a watcher is told first."""
    try:
        return next(watcher)
    except grpc.RpcError as error:
        return from_rpc(error)


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
