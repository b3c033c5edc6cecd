"""Models in the process of a replica: what is served, by the handlers of a server."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Self

from prometheus_client import CollectorRegistry

from deploy.ray.relayed import Answered, Asked, Refused, RelayedCaller
from deploy.ray.scraping import announce, withdraw
from engine.devices.machine import Machine
from server.admission.quotas import Quota, Quotas
from server.canary import Canaries
from server.catalog.packages import OpenPackage
from server.catalog.served_model import ServedModel
from server.config import Settings
from server.front import open_process_metrics
from server.lifecycle import report_crash
from server.loaded import LoadedModel, load_models
from server.local.channel import Handlers
from server.local.engine import handlers_of
from server.placement import serving_device
from server.running import describe
from server.telemetry.calls import current_call
from server.telemetry.exposition.endpoint import metrics_endpoint
from server.telemetry.logs import CallLog
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.metrics.caller import CallerMetrics
from server.telemetry.metrics.process import State
from server.telemetry.observed import ObservedCalls
from server.telemetry.tracing import open_tracing
from server.traffic.ports import address

log = logging.getLogger(__name__)


class Models:
    """Open until `close`."""

    def __init__(self, settings: Settings, labels: dict[str, str]) -> None:
        """labels: of all their metrics, where Prometheus finds them."""
        self.registry = CollectorRegistry()
        self._settings, self._labels = settings, labels
        self._loaded: list[LoadedModel] = []
        self._handlers: Handlers
        # Calls are counted, traced and logged at the entry. Here it is known which of them are running.
        unseen = CallMetrics(CollectorRegistry())
        self._calls = ObservedCalls(unseen, open_tracing(settings, ""), CallLog(settings))
        self._stack = AsyncExitStack()
        self._target = ""
        self.closed = False
        self.wrong = False
        """Known answers are not as they must be, and health is to say so."""

    @classmethod
    async def open(cls, settings: Settings, packages: Sequence[OpenPackage], labels: dict[str, str]) -> Self:
        """Loads them. Raises ConfigError or DeviceError."""
        models = cls(settings, labels)
        try:
            await models._open(packages)
        except BaseException:
            await models._stack.aclose()
            raise
        return models

    async def _open(self, packages: Sequence[OpenPackage]) -> None:
        started = time.perf_counter()
        process = open_process_metrics(self.registry)
        device = serving_device(self._settings, [one.package.manifest.graphs for one in packages], Machine())
        endpoint = self._stack.enter_context(metrics_endpoint(self._settings, self.registry))
        quotas = Quotas(Quota(), CallerMetrics(self.registry))
        loading = load_models(self._settings, packages, device, self.registry, quotas)
        self._loaded = list(await self._stack.enter_async_context(loading))
        describe(process, self._settings, self._loaded, time.perf_counter() - started)
        self._handlers = handlers_of(self._loaded, self._settings)
        for one in self._loaded:
            failing = asyncio.create_task(report_crash(asyncio.wrap_future(one.runner.failure), one.admission))
            self._stack.callback(failing.cancel)
        canaries = Canaries(lambda: [one.canary for one in self._loaded])
        self._found(await canaries.check())
        watching = canaries.watch(self._settings.canary_interval_s, self._found)
        self._stack.callback(asyncio.create_task(watching).cancel)
        process.enter(State.SERVING)
        self._target = address(self._settings.host, endpoint.port)
        await self.announce()

    async def announce(self) -> None:
        """Says where the metrics are. Ray wants it said again and again."""
        await announce(self._target, self._labels)

    async def close(self) -> None:
        """Waits for the calls that are running, and frees the memory."""
        await self._calls.wait_until_idle()
        self.closed = True
        if self._target:
            await withdraw(self._target)
        await self._stack.aclose()

    @property
    def running(self) -> int:
        """Calls that are being answered."""
        return self._calls.running

    @property
    def facts(self) -> list[ServedModel]:
        """Of all models."""
        return [one.model for one in self._loaded]

    def failed(self) -> list[str]:
        """Names of those whose engines are given up."""
        return [one.model.name for one in self._loaded if one.runner.failure.done()]

    def _found(self, equal: bool) -> None:
        """What the canaries found."""
        self.wrong = self._settings.canary_health and not equal

    async def answer(self, asked: Asked) -> Answered | Refused:
        """Of a method that has one. Leaving it frees the rows."""
        caller = RelayedCaller(asked)
        async with self._calls.observed(asked.method, caller):
            behaviour, request = self._begun(asked)
            response = await behaviour(request, None)
            return Answered.by(current_call(), response.SerializeToString())
        return _refused(caller)

    async def answers(self, asked: Asked) -> AsyncGenerator[bytes | Answered | Refused]:
        """The responses of a method that streams, and what the call came to."""
        caller = RelayedCaller(asked)
        async with self._calls.observed(asked.method, caller):
            behaviour, request = self._begun(asked)
            async with aclosing(behaviour(request, None)) as responses:
                async for response in responses:
                    yield response.SerializeToString()
            yield Answered.by(current_call())
        if caller.refused is not None:
            yield caller.refused

    def _begun(self, asked: Asked) -> tuple[Callable[..., Any], Any]:
        """What answers a request, and the request."""
        handler = self._handlers.handler(f"/{asked.method}")
        return self._handlers.behaviour(f"/{asked.method}"), handler.request_deserializer(asked.request)


def _refused(caller: RelayedCaller) -> Refused:
    assert caller.refused is not None
    return caller.refused
