"""What a server is built of, in order, and how long each part lives."""

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version

import grpc
import onnxruntime as ort
import uvloop
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from dragoman import __version__
from engine.budget import MEGABYTE
from engine.devices.machine import Machine
from engine.devices.session import Device, DeviceError
from engine.load import Limits, Loadable, load
from engine.probes import fitting
from engine.request import Event, Failed, Probe, Request
from engine.runner import Runner
from engine.supervision.policy import Supervision
from engine.targets import language_rules
from models.package.checked import PackageError
from models.package.folder import Package
from models.package.seal import SealError, check_seal, public_key
from models.tokenizers.tokenizer import TokenizerError
from server.admission.permits import Admission
from server.admission.quotas import Quota, Quotas
from server.canary import Canary
from server.catalog.catalog import Catalog
from server.catalog.served_model import ServedModel, served_model
from server.config import ConfigError, Settings
from server.grpc import health as health_service
from server.grpc import service
from server.grpc.health import Health
from server.grpc.listeners import address, metrics_endpoint, open_server
from server.grpc.rpc import RpcInterceptor
from server.identity.opening import open_door
from server.identity.reloads import Reloads, Source
from server.identity.tls import open_tls, warn_of_exposure
from server.lifecycle import StopSignals, drain, report_crash
from server.placement import device_memory, facts, host_memory, serving_device
from server.telemetry import logs
from server.telemetry.logs import CallLog
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.metrics.caller import QUOTAS, CallerMetrics
from server.telemetry.metrics.canary import CanaryMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.telemetry.metrics.process import ProcessMetrics, State
from server.telemetry.metrics.reload import ReloadMetrics
from server.telemetry.observed import ObservedCalls
from server.telemetry.tracing import Tracing, open_tracing
from server.translation.answer_cache import AnswerCache
from server.translation.translator import Translator

log = logging.getLogger("server")

SWITCH_INTERVAL_S = 0.0005
"""How long an engine's thread waits for the interpreter, after its step, while the event loop is busy. Python's own
5 ms are several steps of a small model."""


def run(settings: Settings) -> int:
    """Serves until a signal, in a process that ends then. Returns its exit code. Raises ConfigError before that."""
    logs.configure(settings)
    warn_of_exposure(settings)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        return uvloop.run(_run(settings))
    except (PackageError, SealError, TokenizerError, DeviceError) as error:
        raise ConfigError(str(error)) from error


async def _run(settings: Settings) -> int:
    return await serve(settings, StopSignals(settings.grace_period_s))


async def serve(settings: Settings, signals: StopSignals) -> int:
    """Serves until a signal. Raises ConfigError, PackageError, TokenizerError or DeviceError before that.

    Returns the exit code.
    """
    with closing(open_tracing(settings, __version__)) as tracing:
        return await serve_traced(settings, signals, tracing)


async def serve_traced(settings: Settings, signals: StopSignals, tracing: Tracing) -> int:
    """See `serve`."""
    started = time.perf_counter()
    package = open_package(settings)
    machine = Machine()
    device = serving_device(settings, package, machine)
    loadable = Loadable.of(package)
    model = served_model(package, settings, device.provider)
    registry = CollectorRegistry()
    metrics = ModelMetrics(ModelFamilies(registry), model.name)
    process = open_process_metrics(registry, settings, model)
    calls = ObservedCalls(CallMetrics(registry), tracing, CallLog(settings))
    limits = settings.max_message_bytes, settings.request_timeout_s, settings.stream_stall_timeout_s
    callers = CallerMetrics(registry)
    quotas = Quotas(Quota(**{name: getattr(settings, f"quota_{name}") for name in QUOTAS}), callers)
    door, sources = open_door(settings, callers.know)
    interceptor = RpcInterceptor(service.SERVICES, *limits, calls, door, quotas, settings.caller_key)
    credentials = None
    if (tls := open_tls(settings)) is not None:
        sources.append(Source("tls", tls.files.all, tls.load))
        credentials = tls.credentials()
        process.describe_certificate(lambda: tls.expiry)
    server, port = open_server(settings, [interceptor], credentials)
    reloads = Reloads(sources, ReloadMetrics(registry, [source.name for source in sources]))
    with metrics_endpoint(settings, registry) as metrics_port:
        async with open_runner(settings, loadable, model, device, metrics) as runner:
            process.describe_device(facts(runner.device), settings.device, runner.device.cuda_graphs)
            probe_s = await probe(runner.submit, package.manifest.graphs.vocabulary.end_id)
            process.loaded(time.perf_counter() - started, probe_s)
            if device.kind == "cuda":  # not before: the probe captures CUDA graphs, which other calls may disturb
                process.watch_device_memory(device_memory(machine.runtime(), device.index))
            admission = Admission(settings.max_waiting, runner, quotas=quotas)
            cache = AnswerCache(settings.cache_mb * MEGABYTE, AnswerCacheMetrics(registry))
            by_language = language_rules(loadable.rules, package.manifest.languages)
            translator = Translator(
                model, package.tokenizer(), loadable.rules, admission, runner.submit, metrics, cache, by_language
            )
            canary = await open_canary(settings, loadable, runner, CanaryMetrics(registry, model.name))
            well = await canary.check()
            health = await start(server, Catalog({model.name: translator}))
            process.enter(State.SERVING)
            announce(settings, model, runner, probe_s, port, metrics_port)
            crash_report = asyncio.create_task(watch_engines(runner, health, admission, process))
            if settings.canary_health:
                health.set(serving=well)
            canary_watch = asyncio.create_task(
                canary.watch(settings.canary_interval_s, health if settings.canary_health else None)
            )
            reload_watch = asyncio.create_task(reloads.watch())
            if sources:
                signals.on_hangup(reloads.asked.set)
            await signals.first.wait()
            if not runner.failure.done():
                process.enter(State.DRAINING)
            await drain(server, health, admission, calls, settings.grace_period_s, signals.second)
            crash_report.cancel()
            canary_watch.cancel()
            reload_watch.cancel()
    return 1 if runner.failure.done() else 0


def open_process_metrics(registry: CollectorRegistry, settings: Settings, model: ServedModel) -> ProcessMetrics:
    """The metrics of a process with this model, which is starting."""
    process = ProcessMetrics(registry, model.name)
    process.describe_model(model.package_sha256, model.execution_provider, model.precision)
    process.describe_build({"dragoman": __version__, "onnxruntime": ort.__version__, "grpcio": version("grpcio")})
    process.describe_queue(settings.max_waiting)
    return process


def open_package(settings: Settings) -> Package:
    """The package, signed if it has to be. Raises PackageError or SealError."""
    if settings.require_signed is None:
        return Package.open(settings.package)
    key = public_key(settings.require_signed)
    package = Package.open(settings.package)
    check_seal(package, key)
    log.info("the package is signed by the owner of %s", settings.require_signed)
    return package


def open_runner(
    settings: Settings, loadable: Loadable, model: ServedModel, device: Device, metrics: ModelMetrics
) -> Runner:
    """Loads the model. Raises DeviceError."""
    lengths = model.max_source_tokens, model.max_new_tokens
    limits = Limits(settings.max_rows, settings.workers, *lengths, host_memory(settings, model))
    supervision = Supervision(settings.engine_restarts, settings.engine_restart_window_s)
    return load(loadable, device, limits, metrics, settings.kernels, supervision)


async def open_canary(settings: Settings, loadable: Loadable, runner: Runner, metrics: CanaryMetrics) -> Canary:
    """Has the probes of the package that the settings leave room for.

    Standard operators in 8 bits answer otherwise than the native ones, which the probes are of: there, the first
    answers are the known.
    """
    source_tokens, target_tokens = settings.max_source_tokens, settings.max_new_tokens
    probes = fitting(loadable.graphs.spec.probes, source_tokens, target_tokens) if settings.canary_interval_s else []
    canary = Canary(probes, loadable.rules, runner.submit, runner.workers, metrics)
    if loadable.graphs.spec.precision.weights == "int8" and not runner.device.kernels:
        await canary.learn()
    return canary


async def probe(submit: Callable[[Request], None], end_id: int) -> float:
    """Lets an engine decode once before there are callers. Returns the seconds. Raises DeviceError if it cannot.

    On CUDA the engine's thread captures its CUDA graphs thereby.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Event] = loop.create_future()

    def deliver(event: Event) -> None:
        loop.call_soon_threadsafe(answer.set_result, event)

    started = time.perf_counter()
    submit(Probe((end_id,), deliver))
    event = await answer
    if isinstance(event, Failed):
        raise DeviceError(f"the model does not decode: {event.error}") from event.error
    return time.perf_counter() - started


async def watch_engines(runner: Runner, health: Health, admission: Admission, process: ProcessMetrics) -> None:
    """Waits until engines are given up, tells everybody, and has the process end as after a signal."""
    await report_crash(asyncio.wrap_future(runner.failure), health, admission)
    process.enter(State.FAILED)
    log.critical("engines have failed too often: the server ends")
    signal.raise_signal(signal.SIGTERM)


async def start(server: grpc.aio.Server, models: Catalog[Translator]) -> Health:
    """Adds all services and starts: serving."""
    health = Health(service.SERVICES)
    health.register(server)
    service.register(server, models)
    reflection.enable_server_reflection([*service.SERVICES, health_service.SERVICE, reflection.SERVICE_NAME], server)
    await server.start()
    health.set(serving=True)
    return health


def announce(
    settings: Settings, model: ServedModel, runner: Runner, probe_s: float, port: int, metrics_port: int
) -> None:
    """Logs that the server is ready, where, and on what."""
    log.info(
        "serving %s on %s with %d workers of %d rows (%s); metrics on http://%s/metrics",
        model.name,
        address(settings.host, port),
        runner.workers,
        runner.rows,
        model.execution_provider,
        address(settings.host, metrics_port),
    )
    told = ", ".join(f"{name} {fact}" for name, fact in facts(runner.device).items() if fact)
    log.info("%s; the probe decode took %.1f ms", told, probe_s * 1000)
