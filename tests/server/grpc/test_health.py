"""server.grpc.health: what it says, and that nobody who does not listen holds it up."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import (  # type: ignore[attr-defined]  # its published types know no List
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
)
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.fakes import WAIT_S
from tests.serving import SMALL_WINDOW, Serving, refusal, refused, serving

NAMES = (
    "",
    "dragoman.v1.TranslationService",
    "dragoman.v1.EncodingService",
    "dragoman.v1.ModelService",
    "inference.GRPCInferenceService",
)
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


def stub(channel: grpc.aio.Channel) -> Any:
    """Whose types do not know that it has methods."""
    return HealthStub(channel)


async def states(server: Serving) -> set[int]:
    """Of the server and every service."""
    health = stub(server.channel)
    return {(await health.Check(HealthCheckRequest(service=name))).status for name in NAMES}


async def test_it_is_known_for_the_server_and_every_service_and_follows_its_life() -> None:
    async with serving() as server:
        assert await states(server) == {SERVING}
        server.health.set(serving=False)
        assert await states(server) == {NOT_SERVING}
        server.health.set(serving=True)
        listed = (await stub(server.channel).List(HealthListRequest())).statuses
        assert {name: listed[name].status for name in listed} == dict.fromkeys(NAMES, SERVING)
        server.health.end()
        server.health.set(serving=True)  # too late
        assert await states(server) == {NOT_SERVING}


async def test_a_service_that_is_not_here_is_not_found() -> None:
    async with serving() as server:
        told = await refused(stub(server.channel).Check(HealthCheckRequest(service="dragoman.v1.Other")))
        assert (told.code, told.info.reason) == (grpc.StatusCode.NOT_FOUND, "SERVICE_NOT_FOUND")
        watch = stub(server.channel).Watch(HealthCheckRequest(service="dragoman.v1.Other"))
        assert (await watch.read()).status == HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()


async def test_a_watcher_is_told_of_every_change_and_then_to_go() -> None:
    async with serving() as server:
        watch = stub(server.channel).Watch(HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        server.health.set(serving=False)
        assert (await watch.read()).status == NOT_SERVING
        server.health.set(serving=False)
        server.health.set(serving=True)
        assert (await watch.read()).status == SERVING
        server.health.end()
        assert (await watch.read()).status == NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await watch.read()
        assert refusal(caught.value).info.reason == "DRAINING"


async def test_a_watcher_that_reads_nothing_holds_up_nobody() -> None:
    async with serving() as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", SMALL_WINDOW) as channel:
        stalled = stub(channel).Watch(HealthCheckRequest())
        assert await stalled.initial_metadata() is not None
        for change in range(100):
            server.health.set(serving=bool(change % 2))
            await asyncio.sleep(0)
        async with asyncio.timeout(WAIT_S):
            watch = stub(server.channel).Watch(HealthCheckRequest())
            assert (await watch.read()).status == SERVING
            server.health.set(serving=False)
            assert (await watch.read()).status == NOT_SERVING
            assert await states(server) == {NOT_SERVING}
        seen = [(await stalled.read()).status, (await stalled.read()).status]
        assert seen[-1] == NOT_SERVING  # of all that it did not read, the last
