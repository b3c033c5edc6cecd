"""Where calls come in: the gRPC port of a server, with all that stands before its handlers, and no model behind it.

Not the proxies of Ray Serve: they tell nothing of a call's deadline, have no limits of ours, and are one process more
for every call to go through. docs/decisions/0038 has the reasons.
"""

import asyncio
import gc
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import ray
from grpc_reflection.v1alpha import reflection
from ray import serve
from ray.serve.handle import DeploymentHandle

from deploy.ray.arguments import Entry, Group
from deploy.ray.entry.forwarding import Forwarding
from deploy.ray.entry.routes import Deployed, Routes
from deploy.ray.scraping import announce, announced, withdraw
from dragoman import __version__
from server.api.service import SERVICES
from server.app import SWITCH_INTERVAL_S
from server.config import ConfigError
from server.front import Front
from server.grpc import health as health_service
from server.grpc.health import Health
from server.identity.tls import warn_of_exposure
from server.lifecycle import drain
from server.placement import warn_of_memory
from server.telemetry import logs
from server.telemetry.exposition.endpoint import metrics_endpoint
from server.telemetry.metrics.process import State
from server.telemetry.tracing import open_tracing
from server.traffic.ports import address


class EntryServer:
    """Ray Serve makes and ends it."""

    async def __init__(  # type: ignore[misc]  # it is awaited
        self,
        entry: Entry,
        groups: Sequence[Group],
        handles: Sequence[DeploymentHandle[Any]],
        hashes: Sequence[Sequence[str]],
    ) -> None:
        """handles: of the deployment of each group. hashes: the SHA-256 of its packages. Raises ConfigError."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._settings = settings = entry.server_settings()
        logs.configure(settings)
        warn_of_exposure(settings)
        warn_of_memory(settings.memory_mb)
        self._stack = AsyncExitStack()
        tracing = open_tracing(settings, __version__)
        self._stack.callback(tracing.close)
        self._front = front = Front(settings, tracing, SERVICES)
        node = ray.util.get_node_ip_address()
        try:
            self._server, _ = front.open_port()
            endpoint = self._stack.enter_context(metrics_endpoint(settings, front.registry))
        except ConfigError as error:
            told = "of args it is that of `entry`; where it is free by now, deploy again with another `revision`"
            raise ConfigError(f"on node {node}: {error}; {told}") from error
        self._stack.callback(asyncio.create_task(front.reloads.watch()).cancel)

        host = node if settings.host in ("0.0.0.0", "::") else settings.host
        self._target = address(host, endpoint.port)
        self._health = Health(SERVICES)
        self._health.register(self._server)
        routes = Routes([Deployed(*each) for each in zip(groups, handles, hashes, strict=True)])
        await routes.open()
        self._stack.callback(asyncio.create_task(routes.settle()).cancel)
        Forwarding(routes.catalog, settings.pivot).register(self._server)
        names = [*SERVICES, health_service.SERVICE, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, self._server)
        await self._server.start()
        self._health.set(serving=True)
        gc.freeze()
        front.process.enter(State.SERVING)
        await self.check_health()

    async def check_health(self) -> None:
        """Says where the metrics are. Ray Serve asks again and again."""
        replica = serve.get_replica_context().replica_id
        labels = {"replica": replica.unique_id, "deployment": replica.deployment_id.name}
        await announce(self._target, labels)

    async def __call__(self, request: object) -> list[dict[str, Any]]:
        """By HTTP, of the port of Ray Serve: where Prometheus finds all metrics."""
        return await asyncio.to_thread(announced)

    async def __del__(self) -> None:
        """Sends clients elsewhere and lets their calls finish, as a server does."""
        front, grace_s = self._front, self._settings.grace_period_s
        front.process.enter(State.DRAINING)
        await drain(self._server, self._health, [], front.calls, grace_s, asyncio.Event(), pauses=front.traffic.pauses)
        await withdraw(self._target)
        await self._stack.aclose()
