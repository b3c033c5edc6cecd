"""server.grpc.rpc and server.grpc.listeners: every kind of handler, bytes of every kind, and calls in numbers."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse
from prometheus_client import CollectorRegistry

from dragoman.v1.model_pb2 import GetModelRequest
from dragoman.v1.model_pb2_grpc import ModelServiceStub
from server.config import Settings
from server.errors import EmptyContents
from server.grpc.listeners import open_server
from server.grpc.rpc import RpcInterceptor
from server.telemetry.logs import CallLog
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.observed import ObservedCalls
from server.telemetry.tracing import open_tracing
from server.traffic.bounds import MOST_MESSAGES, Bounds
from server.traffic.traffic import Traffic
from tests.fakes import WAIT_S
from tests.serving import SMALL_WINDOW, TRANSLATE, Serving, eventually, refused, serving, texts, translate_request

if TYPE_CHECKING:
    from dragoman.v1.model_pb2_grpc import ModelServiceAsyncStub

CHECK = "grpc.health.v1.Health/Check"
WATCH = "grpc.health.v1.Health/Watch"
REFLECT = "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
NO_MESSAGE = b"\x0a\x02\xff\xfe"


async def sent(*messages: bytes) -> AsyncIterator[bytes]:
    for message in messages:
        yield message


def raw(channel: Any, method: str) -> Any:
    """A call with bytes; the types of a channel know none."""
    kinds = {CHECK: channel.unary_unary, WATCH: channel.unary_stream, REFLECT: channel.stream_stream}
    return kinds[method](f"/{method}")


# Health and reflection


@pytest.mark.parametrize("method", [CHECK, WATCH, REFLECT])
async def test_bytes_that_are_no_message_are_refused_everywhere(method: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        call = raw(server.channel, method)(sent(NO_MESSAGE) if method == REFLECT else NO_MESSAGE)
        told = await refused(call if method == CHECK else call.read())
        assert (told.code, told.info.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE")
        assert dict(told.info.metadata) == {"method": method, "size_bytes": "4"}
    assert not caplog.records


async def test_a_message_over_the_limit_is_refused_everywhere() -> None:
    async with serving(max_message_bytes=1024) as server:
        told = await refused(raw(server.channel, CHECK)(HealthCheckRequest(service="x" * 1100).SerializeToString()))
        assert (told.code, told.info.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")


async def test_reflection_answers_message_by_message_until_one_is_bad() -> None:
    """A client streams, and so does the server."""
    request = ServerReflectionRequest(list_services="").SerializeToString()
    async with serving() as server:
        call = raw(server.channel, REFLECT)(sent(request, request, NO_MESSAGE))
        for _ in range(2):
            answer = ServerReflectionResponse.FromString(await call.read())
            names = {service.name for service in answer.list_services_response.service}
            assert {"dragoman.v1.ModelService", "grpc.health.v1.Health"} <= names
        assert (await refused(call.read())).info.reason == "INVALID_MESSAGE"


# Requests that do not come


def silent(server: Serving) -> Any:
    """A call that is begun; the client may stream."""
    return cast(Any, server.channel).stream_unary(f"/{TRANSLATE}")(timeout=WAIT_S)


async def test_a_call_whose_request_does_not_come_is_in_flight_and_then_refused() -> None:
    async with serving(request_timeout_s=1.0) as server:
        call = silent(server)
        await eventually(lambda: server.metric("dragoman_rpc_in_flight", method=TRANSLATE) == 1)
        told = await refused(call)
        assert (told.code, told.info.reason) == (grpc.StatusCode.ABORTED, "REQUEST_STALLED")
        assert dict(told.info.metadata) == {"request_timeout_s": "1.0"}
        await eventually(lambda: server.metric("dragoman_rpc_in_flight", method=TRANSLATE) == 0)
        assert await texts(server, "A cat.") == ["A cat."]


async def test_silent_calls_keep_nobody_out() -> None:
    async with serving(request_timeout_s=WAIT_S) as server:
        calls = [silent(server) for _ in range(MOST_MESSAGES + 1)]
        await eventually(lambda: server.metric("dragoman_refusals_total", reason="REQUEST_STALLED") >= 1)
        assert await texts(server, "A cat.") == ["A cat."]
        assert server.metric("dragoman_rpc_in_flight", method=TRANSLATE) <= MOST_MESSAGES
        for call in calls:
            call.cancel()


async def test_a_call_that_is_refused_is_freed_without_the_garbage_collector() -> None:
    """It may have brought much of a request."""
    async with serving(request_timeout_s=0.05) as server:
        gc.collect()
        others = set(map(id, kept := contexts()))  # of tests before this, which something still has
        gc.disable()
        try:
            for _ in range(5):
                await refused(silent(server))
                await refused(server.translations.Translate(translate_request()))
            await eventually(lambda: all(id(each) in others for each in contexts()))
        finally:
            gc.enable()
            kept.clear()


def contexts() -> list[object]:
    """Calls that gRPC has, of any server of this process."""
    return [each for each in gc.get_objects() if type(each).__name__ == "_ServicerContext"]


async def test_a_call_without_a_request_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        call = silent(server)
        await call.done_writing()
        told = await refused(call)
        assert told.info.reason == "INVALID_MESSAGE"
        assert told.message.endswith(": none came before the end of what the caller sends")
        call = silent(server)
        await eventually(lambda: server.metric("dragoman_rpc_in_flight", method=TRANSLATE) == 1)
        call.cancel()
        await eventually(lambda: server.metric("dragoman_rpc_in_flight", method=TRANSLATE) == 0)
    assert not caplog.records


async def test_a_call_is_in_flight_until_its_answer_is_read() -> None:
    async with serving(max_waiting=320, channel_options=SMALL_WINDOW) as server:
        call = cast(Any, server.channel).unary_stream(f"/{TRANSLATE}")  # reads when it is told to
        request = translate_request(*["A cat sleeps on the red sofa. " * 5] * 8).SerializeToString()
        unread = [call(request) for _ in range(40)]
        await eventually(
            lambda: server.metric("dragoman_rpc_requests_total", method=TRANSLATE, code="OK") == len(unread)
        )
        assert server.metric("dragoman_rpc_in_flight", method=TRANSLATE) > 0
        for each in unread:
            assert await each.read()
        await eventually(lambda: server.metric("dragoman_rpc_in_flight", method=TRANSLATE) == 0)


# Every kind of handler


async def total(requests: AsyncIterator[bytes], context: object) -> bytes:
    sizes = [len(request) async for request in requests]
    if not sizes:
        raise EmptyContents
    return str(sum(sizes)).encode()


async def sizes(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
    async for request in requests:
        if not request:
            raise EmptyContents
        yield str(len(request)).encode()


async def test_handlers_of_clients_that_stream_are_observed_as_what_they_are() -> None:
    settings, registry = Settings(workers=1, port=0), CollectorRegistry()
    calls = ObservedCalls(CallMetrics(registry), open_tracing(settings, "1"), CallLog(settings))
    bounds = Bounds(8, 10, 0, 10)
    server, port = open_server(settings, bounds, [RpcInterceptor(["t.Sizes"], Traffic.of(settings, bounds), calls)])

    def same(data: bytes) -> bytes:
        return data

    handlers = {
        "Total": grpc.stream_unary_rpc_method_handler(total, same, same),
        "Each": grpc.stream_stream_rpc_method_handler(sizes, same, same),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Sizes", handlers),))
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        unary: Any = channel.stream_unary("/t.Sizes/Total")
        stream: Any = channel.stream_stream("/t.Sizes/Each")
        assert await unary(sent(b"abc", b"de")) == b"5"
        assert [answer async for answer in stream(sent(b"abc", b"de"))] == [b"3", b"2"]
        for refusal, reason in (
            (unary(sent()), "EMPTY_CONTENTS"),
            (unary(sent(b"123456789")), "MESSAGE_TOO_LARGE"),
            (stream(sent(b"")).read(), "EMPTY_CONTENTS"),
        ):
            assert (await refused(refusal)).info.reason == reason
    await server.stop(None)
    for method, refusals in (("t.Sizes/Total", 2), ("t.Sizes/Each", 1)):
        counted = [
            sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "dragoman_rpc_requests_total" and sample.labels["method"] == method
        ]
        assert sum(counted) == 1 + refusals


# Sizes and numbers


async def test_a_message_of_more_than_twice_the_limit_is_not_taken_in() -> None:
    async with serving(max_message_bytes=1024) as server:
        told = await refused(server.translations.Translate(translate_request("x" * 2000)))
        assert (told.code, told.info.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
        for size in (2100, 10_000_000):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await server.translations.Translate(translate_request("x" * size))
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "2048" in (caught.value.details() or "")
        assert server.metric("dragoman_rpc_requests_total", method=TRANSLATE, code="RESOURCE_EXHAUSTED") == 1
        assert await texts(server, "A cat.") == ["A cat."]


async def test_calls_that_come_faster_than_they_are_taken_up_are_answered() -> None:
    """gRPC itself ends calls with a bare CANCELLED, by chance from 1,000 that wait on and for certain from 3,000."""
    async with serving() as server:
        target = f"127.0.0.1:{server.port}"
        channels = [grpc.insecure_channel(target, [("number", number)]) for number in range(2)]
        stubs = [ModelServiceStub(channel) for channel in channels]
        await asyncio.to_thread(lambda: [stub.GetModel(GetModelRequest()) for stub in stubs])
        futures = [stubs[number % 2].GetModel.future(GetModelRequest()) for number in range(3500)]
        time.sleep(2)  # of the event loop too: nothing is taken up
        answers = await asyncio.to_thread(lambda: [future.code() for future in futures])
        assert set(answers) == {grpc.StatusCode.OK}
        for channel in channels:
            channel.close()


async def test_a_connection_has_no_more_calls_under_way_than_it_may() -> None:
    async with serving(max_concurrent_streams=3, max_rows=8) as server:
        assert await texts(server, "Rain.") == ["Rain."]  # by now its client knows
        server.decoder.gate.close()
        calls = [asyncio.ensure_future(texts(server, "A cat.")) for _ in range(5)]
        await eventually(lambda: server.calls.running == 3)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", [("number", 1)]) as other:
            models: ModelServiceAsyncStub = ModelServiceStub(other)
            await models.GetModel(GetModelRequest())  # every connection has its own
        await eventually(lambda: server.calls.running == 3)  # once that one's answer is out
        server.decoder.gate.open()
        assert await asyncio.gather(*calls) == [["A cat."]] * 5
