"""The models that are loaded, and what each of them needs to be served."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry

from engine.budget import MEGABYTE, HostMemory
from engine.devices.session import Device, DeviceError
from engine.load import Limits, Plan, load_all
from engine.probes import fitting
from engine.request import Event, Failed, Probe, Request
from engine.runner import CLOSE_S, Runner
from engine.supervision.policy import Supervision
from engine.targets import language_rules
from server.admission.permits import Admission
from server.admission.quotas import Quotas
from server.canary import Canary
from server.catalog.packages import OpenPackage
from server.catalog.served_model import ServedModel, served_model
from server.config import Settings
from server.placement import host_memory
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.telemetry.metrics.canary import CanaryFamilies, CanaryMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.translation.sharing.answer_cache import AnswerCache
from server.translation.translator import Translator

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """A model that decodes."""

    runner: Runner
    admission: Admission
    translator: Translator
    canary: Canary
    probe_s: float
    """Time of its first decode."""

    @property
    def model(self) -> ServedModel:
        return self.translator.model


@asynccontextmanager
async def load_models(
    settings: Settings,
    packages: Sequence[OpenPackage],
    device: Device,
    registry: CollectorRegistry,
    quotas: Quotas,
    callers_bytes: int = 0,
    left_s: Callable[[], float] = lambda: CLOSE_S,
) -> AsyncIterator[list[LoadedModel]]:
    """Loads all models and lets each decode; their engines run inside of the context. Raises ConfigError, DeviceError.

    callers_bytes: what those who call may take of the host's memory
    left_s: how long they may take to end, all together, where that is less than the usual.
    Calls are let in model by model, so that a slow one fills no queue but its own.
    """
    models = [served_model(one.package, settings, device.provider) for one in packages]
    families, canaries = ModelFamilies(registry), CanaryFamilies(registry)
    metrics = [ModelMetrics(families, model.name) for model in models]
    cache = AnswerCache(settings.cache_mb * MEGABYTE, AnswerCacheMetrics(registry))
    memory = host_memory(settings, models, callers_bytes)
    runners = _load(settings, packages, models, device, metrics, memory)
    async with running(runners, left_s):
        loaded: list[LoadedModel] = []
        for one, model, runner, counted in zip(packages, models, runners, metrics, strict=True):
            probe_s = await probe(runner.submit, one.package.manifest.graphs.vocabulary.end_id)
            model = replace(model, workers=runner.workers, rows=runner.rows, memory_bytes=runner.memory_bytes)
            admission = Admission(settings.max_waiting, runner, quotas=quotas)
            rules = one.loadable.rules
            by_language = language_rules(rules, one.package.manifest.languages)
            translator = Translator(model, one.tokenizer, rules, admission, runner.submit, counted, cache, by_language)
            canary = await open_canary(settings, one, runner, CanaryMetrics(canaries, model.name))
            loaded.append(LoadedModel(runner, admission, translator, canary, probe_s))
        yield loaded


@asynccontextmanager
async def running(runners: Sequence[Runner], left_s: Callable[[], float]) -> AsyncIterator[None]:
    """Runs engines, and ends them all at once."""
    try:
        for runner in runners:
            runner.start()
        yield
    finally:
        await asyncio.gather(*(runner.aclose(min(CLOSE_S, left_s())) for runner in runners))


def _load(
    settings: Settings,
    packages: Sequence[OpenPackage],
    models: Sequence[ServedModel],
    device: Device,
    metrics: Sequence[ModelMetrics],
    memory: HostMemory | None,
) -> list[Runner]:
    """Raises DeviceError."""
    plans = [
        Plan(
            one.loadable,
            Limits(settings.max_rows, settings.workers, model.max_source_tokens, model.max_new_tokens),
            counted,
        )
        for one, model, counted in zip(packages, models, metrics, strict=True)
    ]
    supervision = Supervision(settings.engine_restarts, settings.engine_restart_window_s)
    return load_all(plans, device, memory, settings.kernels, supervision)


async def open_canary(settings: Settings, package: OpenPackage, runner: Runner, metrics: CanaryMetrics) -> Canary:
    """Has the probes of the package that the settings leave room for.

    Standard operators in 8 bits answer otherwise than the native ones, which the probes are of: there, the first
    answers are the known.
    """
    spec = package.loadable.graphs.spec
    source_tokens, target_tokens = settings.max_source_tokens, settings.max_new_tokens
    probes = fitting(spec.probes, source_tokens, target_tokens) if settings.canary_interval_s else []
    canary = Canary(package.name, probes, package.loadable.rules, runner.submit, runner.workers, metrics)
    if spec.precision.weights == "int8" and not runner.device.kernels:
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
