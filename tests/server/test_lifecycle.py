"""server.lifecycle: health, signals, and the end. Draining and crashes of a whole server are in test_service."""

import asyncio
import os
import signal
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from server.lifecycle import Health, StopSignals, close
from tests.serving import STREAM, eventually, held, serving, stream_request

NAMES = ("", "dragoman.v1.TranslationService", "dragoman.v1.EncodingService", "dragoman.v1.ModelService")


async def state(channel: grpc.aio.Channel, name: str) -> int:
    stub: Any = HealthStub(channel)  # whose types do not know that it has methods
    answer = await stub.Check(HealthCheckRequest(service=name))
    assert isinstance(answer, HealthCheckResponse)
    return answer.status


async def test_health_is_known_for_the_server_and_every_service_and_follows_its_life() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    health = Health(NAMES[1:])
    await health.register(server)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert {await state(channel, name) for name in NAMES} == {HealthCheckResponse.NOT_SERVING}
        await health.set(serving=True)
        assert {await state(channel, name) for name in NAMES} == {HealthCheckResponse.SERVING}
        await health.end()
        await health.set(serving=True)  # too late
        assert {await state(channel, name) for name in NAMES} == {HealthCheckResponse.NOT_SERVING}
    await server.stop(None)


async def test_a_server_that_is_up_serves() -> None:
    async with serving() as server:
        assert {await state(server.channel, name) for name in NAMES} == {HealthCheckResponse.SERVING}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_asks_and_the_second_insists(number: signal.Signals) -> None:
    signals = StopSignals()
    try:
        os.kill(os.getpid(), number)
        await asyncio.wait_for(signals.first.wait(), 20)
        assert not signals.second.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(signals.second.wait(), 20)
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(each)


async def test_closing_gives_calls_that_are_being_answered_their_answer() -> None:
    async with serving() as server:
        server.decoder.gate.let(2)
        stream = server.translations.StreamTranslate(stream_request("Two dogs bark."))
        await held(server)
        closing = asyncio.ensure_future(close(server.server, server.calls))
        server.decoder.gate.open()
        events = [event async for event in stream]
        assert events[-1].translation.hypotheses[0].text == "Two dogs bark."
        await closing


async def test_closing_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        server.decoder.gate.close()
        call = server.translations.StreamTranslate(stream_request("Two dogs bark."))
        await held(server)
        await close(server.server, server.calls)
        assert "1 calls are cut off" in caplog.text
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await call.read()
        await eventually(lambda: server.calls.running == 0)
        assert server.metric("dragoman_rpc_requests_total", method=STREAM, code="CANCELLED") == 1
