"""What the world sees of the server's state, and how it ends."""

import asyncio
import logging
import signal
from collections.abc import Sequence

import grpc
from grpc_health.v1.health import aio as health_aio
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server

from server.admission.permits import Admission
from server.errors import Draining, EngineStopped
from server.grpc.rpc import RpcInterceptor

log = logging.getLogger(__name__)

FLUSH_S = 1.0
"""How long the last answers may take to get out."""


class Health:
    """grpc.health.v1, for the whole server ("") and for each service. Not serving at first."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = ("", *services)
        self._servicer = health_aio.HealthServicer()

    async def register(self, server: grpc.aio.Server) -> None:
        """Adds the health service to a server."""
        add_HealthServicer_to_server(self._servicer, server)
        await self.set(serving=False)

    async def set(self, serving: bool) -> None:
        """Changes the state of all services, unless `end` was called."""
        state = HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING
        for service in self._services:
            await self._servicer.set(service, state)

    async def end(self) -> None:
        """Not serving, for ever."""
        await self._servicer.enter_graceful_shutdown()


class StopSignals:
    """SIGTERM and SIGINT: the first asks to finish, the second to stop at once."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._receive)

    def _receive(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def report_crash(failure: asyncio.Future[Exception], health: Health, admission: Admission) -> None:
    """Waits for a crash of the engine. The server then stays up, to say that it does not serve."""
    await asyncio.shield(failure)
    admission.close(EngineStopped)
    await health.set(serving=False)


async def drain(
    health: Health, admission: Admission, calls: RpcInterceptor, grace_period_s: float, at_once: asyncio.Event
) -> None:
    """Refuses new calls and lets those that run finish, within limits."""
    await health.end()
    admission.close(Draining)
    log.info("draining: %d calls are running, for at most %g s", calls.running, grace_period_s)
    waits = [asyncio.create_task(wait) for wait in (calls.wait_until_idle(), at_once.wait())]
    await asyncio.wait(waits, timeout=grace_period_s, return_when=asyncio.FIRST_COMPLETED)
    for task in waits:
        task.cancel()
    if calls.running:
        log.warning("%d calls are still running and are answered with %s", calls.running, Draining.reason)


async def close(server: grpc.aio.Server, calls: RpcInterceptor) -> None:
    """Gets the last answers out, and ends."""
    try:
        async with asyncio.timeout(FLUSH_S):
            await calls.wait_until_idle()
    except TimeoutError:
        log.warning("%d calls are cut off: their clients do not read", calls.running)
    await server.stop(FLUSH_S)
