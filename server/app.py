"""What a server is built of, in order, and how long each part lives."""

import asyncio
import gc
import logging
import signal
import sys
import threading
import time
import webbrowser
from collections.abc import Iterable
from contextlib import closing
from importlib.metadata import version
from typing import TYPE_CHECKING, NoReturn

import grpc
import onnxruntime as ort
import uvloop
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server
from prometheus_client import CollectorRegistry

from dragoman import __version__
from engine.devices.machine import Machine
from engine.devices.memory import give_back_freed
from engine.devices.session import DeviceError
from models.package.checked import PackageError
from models.package.seal import SealError
from models.tokenizers.tokenizer import TokenizerError
from server.admission.quotas import Quota, Quotas
from server.admission.shedding import Shedding
from server.affinity import TwoSides, two_cores
from server.api import service
from server.api.documents import Documents
from server.canary import Canaries
from server.catalog.catalog import Catalog
from server.catalog.packages import open_packages
from server.catalog.reloading import Reload
from server.config import ConfigError, Settings
from server.grpc import health as health_service
from server.grpc.generic import generic
from server.grpc.health import Health
from server.grpc.listeners import open_server
from server.grpc.rpc import RpcInterceptor
from server.http import missing_modules
from server.identity.door import OpenDoor
from server.identity.entrance import Entrance
from server.identity.opening import open_door
from server.identity.reloads import Reloads
from server.identity.tls import open_tls, warn_of_exposure
from server.kserve import service as kserve
from server.lifecycle import StopSignals, drain, end_process, report_crash
from server.loaded import LoadedModel, LoadedModels, load_models
from server.placement import device_memory, facts, host_limit, serving_device, warn_of_memory
from server.ports import address
from server.telemetry import logs
from server.telemetry.exposition.endpoint import metrics_endpoint
from server.telemetry.logs import CallLog
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.metrics.caller import QUOTAS, CallerMetrics
from server.telemetry.metrics.process import ProcessMetrics, State
from server.telemetry.metrics.reload import ReloadMetrics
from server.telemetry.metrics.version import VersionMetrics
from server.telemetry.observed import ObservedCalls
from server.telemetry.tracing import Tracing, open_tracing
from server.text.documents.document import Limits
from server.traffic.arena import share_arena
from server.traffic.bounds import Bounds
from server.traffic.traffic import Traffic
from server.translation.translator import Translator
from server.versions.versions import Versions
from server.versions.watched import watch_packages

if TYPE_CHECKING:
    from server.http.opening import HttpPort

log = logging.getLogger("server")

OBSERVED = (*service.SERVICES, kserve.SERVICE)
"""Full names of the services whose calls are counted, traced and logged."""

SWITCH_INTERVAL_S = 0.0005
"""How long an engine's thread waits for the interpreter, after its step, while the event loop is busy. Python's own
5 ms are several steps of a small model."""

COLLECT_EVERY = 10_000
"""New objects after which the garbage collector looks for cycles. Calls leave none, and each has some eighty objects
while it is answered: after Python's own 700 the collector looked at every one of them several times over, which was a
tenth of the event loop's time."""


def run(settings: Settings) -> NoReturn:
    """Serves until a signal, and ends the process. Raises ConfigError before that."""
    share_arena()
    logs.configure(settings)
    ort.set_default_logger_severity(4)  # it writes to standard error by itself, and waits
    warn_of_exposure(settings)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        uvloop.run(_run(settings))
    except (PackageError, SealError, TokenizerError, DeviceError) as error:
        raise ConfigError(str(error)) from error


async def _run(settings: Settings) -> NoReturn:
    """Ends the process from within the loop, whose own end waits for threads: one may read from a disk that hangs."""
    end_process(await serve(settings, StopSignals(settings.grace_period_s)))


async def serve(settings: Settings, signals: StopSignals) -> int:
    """Serves until a signal. Raises ConfigError, PackageError, TokenizerError or DeviceError before that.

    Returns the exit code.
    """
    with closing(open_tracing(settings, __version__)) as tracing:
        return await serve_traced(settings, signals, tracing)


async def serve_traced(settings: Settings, signals: StopSignals, tracing: Tracing) -> int:
    """See `serve`."""
    started = time.perf_counter()
    packages = open_packages(settings)
    machine = Machine()
    device = serving_device(settings, [one.package.manifest.graphs for one in packages], machine)
    registry = CollectorRegistry()
    process = open_process_metrics(registry)
    calls = ObservedCalls(CallMetrics(registry), tracing, CallLog(settings))
    warn_of_memory(settings.memory_mb)
    bounds = Bounds.within(settings, host_limit(settings))
    traffic = Traffic.of(settings, bounds)
    callers = CallerMetrics(registry)
    quotas = Quotas(Quota(**{name: getattr(settings, f"quota_{name}") for name in QUOTAS}), callers)
    door, sources = open_door(settings, callers.know)
    # Which of several models a call is for, its request says: nobody is refused before for what another model lacks.
    shedding = Shedding() if len(packages) == 1 else None
    entrance = Entrance(door, quotas, settings.caller_key)
    interceptor = RpcInterceptor(OBSERVED, traffic, calls, entrance, shedding)
    credentials = None
    if (tls := open_tls(settings)) is not None:
        sources.append(tls.source)
        credentials = tls.credentials()
        process.describe_certificate(lambda: tls.expiry)
    server, port = open_server(settings, bounds, [interceptor], credentials)
    http_port = own_http_port(settings, port)
    reloads = Reloads(sources, ReloadMetrics(registry, [source.name for source in sources]))
    if sources:  # before anybody is told that it serves: without, the signal would end it
        signals.on_hangup(reloads.asked.set)
    with metrics_endpoint(settings, registry) as metrics:
        async with load_models(
            settings, packages, device, registry, quotas, bounds.bytes, signals.engines_left_s
        ) as loaded:
            describe(process, settings, loaded, time.perf_counter() - started)
            if device.kind == "cuda":  # not before: the probes capture CUDA graphs, which other calls may disturb
                process.watch_device_memory(device_memory(machine.runtime(), device.index))
            canaries = Canaries(lambda: [one.canary for one in loaded])
            models = Catalog([one.translator for one in loaded])
            documents = Documents(Limits(bounds.document_bytes, settings.max_document_texts), traffic.documents)
            health = Health(OBSERVED)
            engines = EngineWatch(loaded, health, process)

            def promoted(one: LoadedModel, seconds: float) -> None:
                describe_model(process, settings, one, seconds)
                engines.watch(one)
                canaries.asked.set()

            counted = VersionMetrics(registry, [one.model.name for one in loaded])
            versions = Versions(settings, loaded, models, calls, counted, promoted)
            await start(server, models, documents, calls, traffic, settings.pivot, health, versions)
            http = None
            if http_port is not None:
                faces = models, documents, calls, entrance, traffic, lambda: health.state, metrics.page
                http = await http_port.open(*faces, tls, not isinstance(door, OpenDoor), versions)
            give_back_freed()  # of what was there only while models were loaded
            if settings.canary_health:
                health.set(serving=await canaries.check())
            else:  # its answers say nothing of health, so nobody waits for them
                health.set(serving=True)
                await canaries.check()
            process.enter(State.SERVING)
            gc.freeze()  # what is loaded stays: else the collector goes through it again and again, and all wait
            gc.set_threshold(COLLECT_EVERY)
            gc.enable()  # it is off while a server starts, for the same reason
            announce(settings, loaded, port, metrics.port)
            if http_port is not None:
                scheme = "http" if tls is None else "https"
                log.info("HTTP on %s://%s: /docs says what there is", scheme, http_port.address)
                if settings.open:  # on another thread: some browsers are waited for
                    threading.Thread(
                        target=webbrowser.open, args=[f"{scheme}://{http_port.address}/"], daemon=True
                    ).start()
            watching = [
                asyncio.create_task(
                    canaries.watch(settings.canary_interval_s, health.set if settings.canary_health else None)
                ),
                asyncio.create_task(reloads.watch()),
            ]
            if settings.watch_packages:
                watching.append(asyncio.create_task(watch_packages(loaded, versions)))
            if device.kind == "cpu" and (cores := two_cores()):
                sides = TwoSides(
                    cores,
                    lambda: [runner.threads for runner in loaded.runners],
                    lambda: any(runner.expresses for runner in loaded.runners),
                )
                watching.append(asyncio.create_task(sides.watch()))
            engines.watch_all()
            await signals.first.wait()
            versions.close()
            failed = all(one.runner.failure.done() for one in loaded)
            if not failed:
                process.enter(State.DRAINING)
            admissions = [one.admission for one in loaded]
            await drain(
                server, health, admissions, calls, settings.grace_period_s, signals.second, http, traffic.pauses
            )
            for task in watching:
                task.cancel()
            engines.close()
    return 1 if any(one.runner.failure.done() for one in loaded) else 0


def own_http_port(settings: Settings, grpc_port: int | None = None) -> "HttpPort | None":
    """The HTTP port, where there is to be one, and which it says is that of gRPC. Raises ConfigError."""
    if not settings.http:
        return None
    if missing := missing_modules():
        log.info("there is no HTTP port: not installed is %s; pip install '.[http]'", ", ".join(missing))
        return None
    from server.http.opening import HttpPort  # not before: its packages are an extra

    return HttpPort(settings, grpc_port=grpc_port)


def open_process_metrics(registry: CollectorRegistry) -> ProcessMetrics:
    """The metrics of a process that is starting."""
    process = ProcessMetrics(registry)
    process.describe_build({"dragoman": __version__, "onnxruntime": ort.__version__, "grpcio": version("grpcio")})
    return process


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


class EngineWatch:
    """Has the process end, as after a signal, once the engines of all models are given up.

    A model whose engine is given up before refuses its calls, and the others are served.
    """

    def __init__(self, loaded: LoadedModels, health: Health, process: ProcessMetrics) -> None:
        self._loaded, self._health, self._process = loaded, health, process
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By model."""

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
        if all(other.runner.failure.done() for other in self._loaded):
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


def announce(settings: Settings, loaded: Iterable[LoadedModel], port: int, metrics_port: int) -> None:
    """Logs that the server is ready, where, and on what."""
    for one in loaded:
        log.info(
            "serving %s on %s with %d workers of %d rows (%s); metrics on http://%s/metrics",
            one.model.name,
            address(settings.host, port),
            one.runner.workers,
            one.runner.rows,
            one.model.execution_provider,
            address(settings.host, metrics_port),
        )
        told = ", ".join(f"{name} {fact}" for name, fact in facts(one.runner.device).items() if fact)
        log.info("%s; the probe decode took %.1f ms", told, one.probe_s * 1000)
