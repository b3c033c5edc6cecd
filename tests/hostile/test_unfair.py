"""Callers who ask for more than their share, and many at once: others are answered beside them, and nobody is lost."""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from bench.soak.callers import OPTIONS
from bench.soak.questions import short_texts
from dragoman import AsyncClient
from dragoman.errors import from_rpc
from dragoman.v1.decoding_pb2 import EARLY_STOPPING_NEVER, DecodingOptions
from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.server_process import WAIT_S, ServerProcess, eventually, server_process

ZOO = Path("models/zoo/en-pt-int8")
GREEDY, MODEST = [(("x-caller", name),) for name in ("greedy", "modest")]
ENDLESS = DecodingOptions(
    num_beams=16, num_return_sequences=16, length_penalty=10, early_stopping=EARLY_STOPPING_NEVER, max_new_tokens=512
)
TEXTS = short_texts(250, seed=3)
MOST_CHARACTERS = 512 * 16
STRANGE = {
    "one letter": "a",
    "combining": "e\u0301\u0301\u0301",
    "ideographs": "漢字仮名",
    "ligature of 18 letters": "\ufdfa",
    "joined": "\U0001f468\u200d",
    "jamo": "\u1100\u1161\u11a8",
    "digits": "0123456789",
    "right to left": "\u202e",
    "half width": "ｶﾞ",
    "zero": "\0",
    "pieces' own space": "\u2581",
    "codes": ">>x<<",
}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with server_process(ZOO, "--caller-key", "x-caller") as server:
        yield server
        assert server.end(signal.SIGTERM) == 0
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target, OPTIONS) as channel:
        yield channel
    gauges = "dragoman_rows_live", "dragoman_requests_waiting", "dragoman_rpc_in_flight"
    eventually(lambda: not any(server.metrics()(name) for name in gauges))


def endless(contents: int) -> TranslateRequest:
    return TranslateRequest(contents=TEXTS[:contents], decoding=ENDLESS)


@pytest.mark.parametrize(("calls", "contents"), [(1, 24), (2, 250)])
def test_a_small_call_is_answered_beside_endless_searches(calls: int, contents: int, channel: grpc.Channel) -> None:
    stub = TranslationServiceStub(channel)
    greedy = [stub.Translate.future(endless(contents), metadata=GREEDY) for _ in range(calls)]
    for text in TEXTS[:5]:
        request = TranslateRequest(contents=[text], no_cache=True)
        assert stub.Translate(request, metadata=MODEST).translations
    assert not any(call.done() for call in greedy)
    for call in greedy:
        call.cancel()


def test_texts_that_nobody_waits_for_take_no_place(server: ServerProcess, channel: grpc.Channel) -> None:
    stub = TranslationServiceStub(channel)
    searching = stub.Translate.future(endless(16), metadata=GREEDY)
    request = TranslateRequest(contents=TEXTS[:200], no_cache=True)
    for _ in range(3):
        left = [stub.Translate.future(request, metadata=GREEDY) for _ in range(4)]
        eventually(lambda: server.metrics()("dragoman_rpc_in_flight") == 5)
        for call in left:
            call.cancel()
        eventually(lambda: server.metrics()("dragoman_rpc_in_flight") == 1)
    answer = stub.Translate(TranslateRequest(contents=TEXTS[:200]), metadata=MODEST)
    assert len(answer.translations) == 200
    searching.cancel()


@pytest.mark.parametrize("script", STRANGE)
def test_the_longest_text_of_any_script_is_answered_or_refused(script: str, channel: grpc.Channel) -> None:
    piece = STRANGE[script]
    text = (piece * MOST_CHARACTERS)[:MOST_CHARACTERS]
    for characters in (MOST_CHARACTERS, 200):
        request = EncodeRequest(contents=[text[:characters]])
        try:
            assert EncodingServiceStub(channel).Encode(request, timeout=WAIT_S).embeddings
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error
            assert from_rpc(error).reason


def test_health_is_answered_beside_the_largest_calls(channel: grpc.Channel) -> None:
    health: Any = HealthStub(channel)  # whose types do not know that it has methods
    stub = TranslationServiceStub(channel)
    wide = DecodingOptions(num_beams=16, num_return_sequences=16, max_new_tokens=4)
    labels = {str(number): "x" * 30 for number in range(80_000)}
    largest = [
        TranslateRequest(contents=TEXTS[:100], decoding=wide),
        TranslateRequest(contents=TEXTS[:1], labels=labels),
        TranslateRequest(contents=["漢" * MOST_CHARACTERS] * 150),
    ]
    calls = [stub.Translate.future(each) for each in largest]
    asked = 0
    while asked < 3 or not all(call.done() for call in calls):
        assert health.Check(HealthCheckRequest(), timeout=WAIT_S).status == HealthCheckResponse.SERVING
        asked += 1
    assert len(calls[0].result().translations) == 100


async def burst(server: ServerProcess, calls: int) -> Counter[str]:
    """So many at once: what became of them."""
    async with aio.insecure_channel(server.target, OPTIONS) as channel:
        stub: Any = TranslationServiceStub(channel)

        async def call(number: int) -> str:
            try:
                await stub.Translate(TranslateRequest(contents=[TEXTS[number % 50]]))
            except grpc.RpcError as error:
                return from_rpc(error).reason or error.code().name
            return "OK"

        return Counter(await asyncio.gather(*map(call, range(calls))))


def test_calls_that_come_all_at_once_are_answered_or_refused_and_counted(server: ServerProcess) -> None:
    count = "dragoman_rpc_requests_total"
    before = server.metrics()(count)
    told = asyncio.run(burst(server, 2000))
    assert told["OK"]
    assert set(told) <= {"OK", "OVERLOADED"}, told
    eventually(lambda: server.metrics()(count) == before + 2000)


def test_where_memory_is_short_a_burst_waits_in_the_client_and_no_call_is_cancelled() -> None:
    with server_process(ZOO, "--memory-mb", 1536) as server:  # as in compose and in the chart
        told = asyncio.run(burst(server, 2000))
        assert told["OK"]
        assert set(told) <= {"OK", "OVERLOADED"}, told
        assert server.metrics()("dragoman_rpc_requests_total") == 2000


async def herd(target: str, callers: int) -> list[int]:
    """So many clients that come back until they are served: how many texts each got."""
    async with AsyncClient(target) as client:

        async def call(number: int) -> int:
            return len(await client.translate(TEXTS[number : number + 8], timeout_s=10 * WAIT_S, no_cache=True))

        return await asyncio.gather(*map(call, range(callers)))


def test_a_herd_before_a_short_queue_is_served() -> None:
    with server_process(ZOO, "--max-waiting", 32, "--max-contents", 8) as server:
        assert asyncio.run(herd(server.target, 60)) == [8] * 60
        assert server.metrics()("dragoman_refusals_total", reason="OVERLOADED") > 0
        assert server.end(signal.SIGTERM) == 0
