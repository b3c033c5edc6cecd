"""server.grpc.generic: services whose methods gRPC does not wait for one by one."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer, HealthStub, add_HealthServicer_to_server

from server.grpc.generic import generic


class Answers(HealthServicer):
    async def Check(self, request: object, context: object) -> HealthCheckResponse:
        return HealthCheckResponse(status=HealthCheckResponse.SERVING)


@pytest.mark.parametrize(("through", "methods"), [(generic, 0), (lambda server: server, 3)])
async def test_methods_are_served_and_not_waited_for(
    through: Callable[[grpc.aio.Server], grpc.aio.Server], methods: int
) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    add_HealthServicer_to_server(Answers(), through(server))
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = HealthStub(channel)
        answer = await stub.Check(HealthCheckRequest())
        assert answer.status == HealthCheckResponse.SERVING
        waiting = [repr(task) for task in asyncio.all_tasks()]
    assert sum("_request_registered_call" in task for task in waiting) == methods
    await server.stop(None)
