"""A server whose models are loaded: it answers calls, looks after itself, and ends."""

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server

from dragoman import __version__
from engine.devices.memory import give_back_freed
from engine.devices.session import Device
from server.affinity import TwoSides, two_cores
from server.api import service
from server.api.documents import Documents
from server.canary import Canaries
from server.catalog.catalog import Catalog
from server.catalog.reloading import Reload
from server.config import Settings
from server.front import Front
from server.grpc import health as health_service
from server.grpc.generic import generic
from server.grpc.health import Health
from server.kserve import service as kserve
from server.lifecycle import Face, StopSignals, drain, report_crash
from server.loaded import LoadedModel, LoadedModels
from server.placement import facts
from server.telemetry.metrics.process import ProcessMetrics, State
from server.telemetry.metrics.version import VersionMetrics
from server.telemetry.observed import ObservedCalls
from server.text.documents.document import Limits
from server.traffic.traffic import Traffic
from server.translation.translator import Translator
from server.versions.versions import Versions
from server.versions.watched import watch_packages

if TYPE_CHECKING:
    from server.http.opening import HttpPort

log = logging.getLogger(__name__)

OBSERVED = (*service.SERVICES, kserve.SERVICE)
"""Full names of the services whose calls are counted, traced and logged."""

COLLECT_EVERY = 10_000
"""New objects after which the garbage collector looks for cycles. Calls leave none, and each has some eighty objects
while it is answered: after Python's own 700 the collector looked at every one of them several times over, which was a
tenth of the event loop's time."""


class RunningServer:
    """Used by one event loop, inside the context in which the models are loaded."""

    def __init__(self, settings: Settings, front: Front, loaded: LoadedModels, server: grpc.aio.Server) -> None:
        """server: bound, and not started."""
        self._settings, self._front, self._loaded, self._server = settings, front, loaded, server
        self._models = Catalog([one.translator for one in loaded])
        self._health = Health(OBSERVED)
        self._canaries = Canaries(lambda: [one.canary for one in loaded])
        self._engines = EngineWatch(loaded, self._health, front.process)
        counted = VersionMetrics(front.registry, [one.model.name for one in loaded])
        self._versions = Versions(settings, loaded, self._models, front.calls, counted, self._promoted)
        self._http: Face | None = None
        self._watching: list[asyncio.Task[None]] = []

    async def begin(self, http_port: "HttpPort | None", metrics: Callable[[bool], Awaitable[bytes]]) -> None:
        """Answers calls, and says so once it does. metrics: their page; of OpenMetrics, if it is told so."""
        settings, front = self._settings, self._front
        limits = Limits(front.bounds.document_bytes, settings.max_document_texts)
        documents = Documents(limits, front.traffic.documents)
        served = self._models, documents, front.calls
        await start(self._server, *served, front.traffic, settings.pivot, self._health, self._versions)
        if http_port is not None:
            self._http = await http_port.open(
                *served,
                front.entrance,
                front.traffic,
                lambda: self._health.state,
                metrics,
                front.tls,
                front.asks_for_keys,
                self._versions,
            )
        give_back_freed()  # of what was there only while models were loaded
        if settings.canary_health:
            self._health.set(serving=await self._canaries.check())
        else:  # its answers say nothing of health, so nobody waits for them
            self._health.set(serving=True)
            await self._canaries.check()
        front.process.enter(State.SERVING)
        gc.freeze()  # what is loaded stays: else the collector goes through it again and again, and all wait
        gc.set_threshold(COLLECT_EVERY)
        gc.enable()  # it is off while a server starts, for the same reason

    def watch(self, device: Device) -> None:
        """Looks after what may change or go wrong, until it ends."""
        settings, loaded = self._settings, self._loaded
        told = self._health.set if settings.canary_health else None
        watched = [self._canaries.watch(settings.canary_interval_s, told), self._front.reloads.watch()]
        if settings.watch_packages:
            watched.append(watch_packages(loaded, self._versions))
        if device.kind == "cpu" and (cores := two_cores()):
            sides = TwoSides(
                cores,
                lambda: [runner.threads for runner in loaded.runners],
                lambda: any(runner.expresses for runner in loaded.runners),
            )
            watched.append(sides.watch())
        self._watching = list(map(asyncio.create_task, watched))
        self._engines.watch_all()

    async def end(self, signals: StopSignals) -> None:
        """Lets calls finish, for as long as the settings say and nobody signals again."""
        self._versions.close()
        if not self._engines.failed:
            self._front.process.enter(State.DRAINING)
        admissions = [one.admission for one in self._loaded]
        ends = self._settings.grace_period_s, signals.second, self._http, self._front.traffic.pauses
        await drain(self._server, self._health, admissions, self._front.calls, *ends)
        for task in self._watching:
            task.cancel()
        self._engines.close()

    def _promoted(self, one: LoadedModel, seconds: float) -> None:
        """A version of a model serves from now on, which took so many seconds to load."""
        describe_model(self._front.process, self._settings, one, seconds)
        self._engines.watch(one)
        self._canaries.asked.set()


class EngineWatch:
    """Has the process end, as after a signal, once the engines of all models are given up.

    A model whose engine is given up before refuses its calls, and the others are served.
    """

    def __init__(self, loaded: LoadedModels, health: Health, process: ProcessMetrics) -> None:
        self._loaded, self._health, self._process = loaded, health, process
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By model."""

    @property
    def failed(self) -> bool:
        """Those of all models are given up."""
        return all(one.runner.failure.done() for one in self._loaded)

    def watch_all(self) -> None:
        """Those that are served now."""
        for one in self._loaded:
            self.watch(one)

    def watch(self, one: LoadedModel) -> None:
        """From now on, and no longer the version of this model that was served before."""
        if (former := self._tasks.get(one.model.name)) is not None:
            former.cancel()
        self._tasks[one.model.name] = asyncio.create_task(self._watch(one))

    def close(self) -> None:
        """Watches no more."""
        for task in self._tasks.values():
            task.cancel()

    async def _watch(self, one: LoadedModel) -> None:
        await report_crash(asyncio.wrap_future(one.runner.failure), one.admission)
        self._process.model(one.model.name).stopped()
        log.critical("the engines of %s have failed too often: it is served no more", one.model.name)
        if self.failed:
            self._health.set(serving=False)
            self._process.enter(State.FAILED)
            log.critical("engines have failed too often: the server ends")
            signal.raise_signal(signal.SIGTERM)


async def start(
    server: grpc.aio.Server,
    models: Catalog[Translator],
    documents: Documents,
    calls: ObservedCalls,
    traffic: Traffic,
    pivots: bool = False,
    health: Health | None = None,
    reload: Reload | None = None,
) -> Health:
    """Adds all services and answers calls. The health that it returns does not say so yet.

    reload: takes up new versions of models
    """
    health = health or Health(OBSERVED)
    services = generic(server)
    health.register(services)
    service.register(services, models, documents, pivots, reload)
    kserve.register(services, models, calls, traffic.held, __version__)
    names = [*OBSERVED, health_service.SERVICE, reflection.SERVICE_NAME]
    add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), services)  # type: ignore[no-untyped-call]
    await server.start()
    return health


def describe(process: ProcessMetrics, settings: Settings, loaded: Iterable[LoadedModel], seconds: float) -> None:
    """Tells in the metrics what is served, and where. `seconds`: that all took to load."""
    device = max((one.runner.device for one in loaded), key=lambda device: bool(device.kernels))
    process.describe_device(facts(device), settings.device)
    for one in loaded:
        describe_model(process, settings, one, seconds)


def describe_model(process: ProcessMetrics, settings: Settings, one: LoadedModel, seconds: float) -> None:
    """The same of one model."""
    metrics, model = process.model(one.model.name), one.model
    metrics.describe(model.package_sha256, model.execution_provider, model.precision)
    metrics.describe_engine(model.memory_bytes, settings.max_waiting, one.runner.device.cuda_graphs)
    metrics.loaded(seconds, one.probe_s)
