"""The models that are loaded, and what each of them needs to be served."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from prometheus_client import CollectorRegistry

from engine.devices.memory import resident_bytes
from engine.devices.session import Device, DeviceError
from engine.loading.budget import MEGABYTE, HostMemory
from engine.loading.load import Limits, Plan, check_room, load_all
from engine.loading.probes import KnownAnswer, known_answers
from engine.niceness import BESIDE
from engine.request import Event, Failed, Probe, Request
from engine.runner import CLOSE_S, Runner
from engine.supervision.cores import BEHIND, Cores
from engine.supervision.policy import Supervision
from engine.targets import language_rules
from models.package.declared.graphs import GraphsSpec
from models.package.declared.precision import FEW_BITS, Precision
from server.admission.permits import Admission
from server.admission.quotas import Quotas
from server.canary import Canary, post
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

NICE = 10
"""So much nicer engines are than the event loop, which gets a core when it wants one: refusals come at once, and
answers of others do not wait for a step, where more calls come than cores can serve. Nine to one, to the scheduler."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model that decodes."""

    package: OpenPackage
    runner: Runner
    admission: Admission
    translator: Translator
    canary: Canary
    metrics: ModelMetrics
    probe_s: float
    """Time of its first decode."""

    @property
    def model(self) -> ServedModel:
        return self.translator.model


class LoadedModels:
    """The models that are served, in their order, and what another version of one of them is loaded with."""

    def __init__(
        self,
        settings: Settings,
        device: Device,
        registry: CollectorRegistry,
        quotas: Quotas,
        callers_bytes: int,
    ) -> None:
        """See `load_models`."""
        self._settings, self._device, self._quotas, self._callers_bytes = settings, device, quotas, callers_bytes
        self._families, self._canaries = ModelFamilies(registry), CanaryFamilies(registry)
        self._cache = AnswerCache(settings.cache_mb * MEGABYTE, AnswerCacheMetrics(registry))
        self._cores = Cores()
        self._served: list[LoadedModel] = []
        self.runners: list[Runner] = []
        """All that there are, those included that are not served yet, or no more."""
        self._without_bytes = resident_bytes()
        """What the process takes without any model."""

    def __iter__(self) -> Iterator[LoadedModel]:
        return iter(self._served)

    async def load(self, packages: Sequence[OpenPackage]) -> None:
        """Loads all that are to be served, and lets each decode. Raises ConfigError, DeviceError."""
        models = [self._model(one) for one in packages]
        metrics = [ModelMetrics(self._families, model.name) for model in models]
        plans = [self._plan(*each) for each in zip(packages, models, metrics, strict=True)]
        memory = host_memory(self._settings, models, self._callers_bytes)
        for runner in self._load(plans, memory):
            self.runners.append(runner)
            runner.start()
        for each in zip(packages, models, self.runners, metrics, strict=True):
            one = await self._opened(*each, self._canaries)
            one.admission.charge(self._quotas)
            self._served.append(one)

    async def load_beside(self, package: OpenPackage, served: LoadedModel) -> LoadedModel:
        """Loads another version of a model, with as many rows, and lets it decode. The others go on, and go first.

        It is counted nowhere yet. Raises ConfigError, and DeviceError where there is no room for both.
        """
        model, apart = self._model(package), CollectorRegistry()
        metrics = ModelMetrics(ModelFamilies(apart), model.name)
        plan = self._plan(package, model, metrics, served)
        memory = host_memory(self._settings, [one.model for one in self], self._callers_bytes)
        if memory is not None:
            memory = replace(memory, resident_bytes=self._without_bytes)
        others = sum(runner.memory_bytes for runner in self.runners)
        check_room(plan, self._device, others, memory, self._settings.kernels)
        [runner] = await asyncio.to_thread(self._load, [plan], None)
        self.runners.append(runner)
        try:
            runner.weigh(BEHIND)
            runner.start()
            return await self._opened(package, model, runner, metrics, CanaryFamilies(apart))
        except BaseException:
            await self.end(runner)
            raise

    def promote(self, candidate: LoadedModel, served: LoadedModel) -> None:
        """Has one in the place of the other, which goes on until it is ended."""
        self._served[self._served.index(served)] = candidate
        candidate.runner.weigh(1.0)
        candidate.admission.charge(self._quotas)
        candidate.metrics.count_in(self._families)
        candidate.canary.count_in(CanaryMetrics(self._canaries, candidate.model.name))

    async def end(self, runner: Runner, timeout_s: float = CLOSE_S) -> None:
        """Closes one, and frees what it has."""
        await runner.aclose(timeout_s)
        if runner in self.runners:  # the process may end meanwhile, and with it all of them
            self.runners.remove(runner)

    async def retire(self, former: LoadedModel) -> None:
        """Ends a version in whose place there is another one. Its answers were found by its hash."""
        await self.end(former.runner)
        self._cache.forget(former.model.package_sha256)

    def _model(self, package: OpenPackage) -> ServedModel:
        return served_model(package.package, self._settings, self._device.provider)

    def _plan(
        self, package: OpenPackage, model: ServedModel, metrics: ModelMetrics, served: LoadedModel | None = None
    ) -> Plan:
        """`served`: in whose place it is to come, with as many rows and workers. None: as the settings say."""
        longest = model.max_source_tokens, model.max_new_tokens
        if served is None:
            limits = Limits(self._settings.max_rows, self._settings.workers, *longest)
            return Plan(package.loadable, limits, metrics)
        former, graphs = served.runner, package.loadable.graphs.spec
        costs_as = former if graphs.computes_as(served.package.loadable.graphs.spec) else None
        return Plan(package.loadable, Limits(former.rows, former.workers, *longest), metrics, BESIDE, costs_as)

    def _load(self, plans: Sequence[Plan], memory: HostMemory | None) -> list[Runner]:
        """Raises DeviceError."""
        settings = self._settings
        supervision = Supervision(settings.engine_restarts, settings.engine_restart_window_s, nice=NICE)
        return load_all(plans, self._device, memory, settings.kernels, supervision, self._cores)

    async def _opened(
        self,
        package: OpenPackage,
        model: ServedModel,
        runner: Runner,
        metrics: ModelMetrics,
        canaries: CanaryFamilies,
    ) -> LoadedModel:
        """What it needs to be served, once it has decoded. Raises DeviceError if it does not."""
        probe_s = await probe(runner.submit, package.package.manifest.graphs.vocabulary.end_id)
        model = served_by(runner, model)
        admission = Admission(self._settings.max_waiting, runner)
        rules = package.loadable.rules
        by_language = language_rules(rules, package.package.manifest.languages)
        parts = rules, admission, runner.submit, metrics, self._cache, by_language
        translator = Translator(model, package.tokenizer, *parts)
        canary = await open_canary(self._settings, package, runner, CanaryMetrics(canaries, model.name))
        return LoadedModel(package, runner, admission, translator, canary, metrics, probe_s)


def served_by(runner: Runner, model: ServedModel) -> ServedModel:
    """The model with what it has, now that it is loaded: no search is wider than the rows that there are."""
    beams = min(model.max_beams, runner.rows)
    return replace(model, workers=runner.workers, rows=runner.rows, max_beams=beams, memory_bytes=runner.memory_bytes)


@asynccontextmanager
async def load_models(
    settings: Settings,
    packages: Sequence[OpenPackage],
    device: Device,
    registry: CollectorRegistry,
    quotas: Quotas,
    callers_bytes: int = 0,
    left_s: Callable[[], float] = lambda: CLOSE_S,
) -> AsyncIterator[LoadedModels]:
    """Loads all models and lets each decode; their engines run inside of the context. Raises ConfigError, DeviceError.

    callers_bytes: what those who call may take of the host's memory
    left_s: how long they may take to end, all together, where that is less than the usual.
    Calls are let in model by model, so that a slow one fills no queue but its own.
    """
    loaded = LoadedModels(settings, device, registry, quotas, callers_bytes)
    try:
        await loaded.load(packages)
        yield loaded
    finally:
        await asyncio.gather(*(loaded.end(runner, min(CLOSE_S, left_s())) for runner in list(loaded.runners)))


async def open_canary(settings: Settings, package: OpenPackage, runner: Runner, metrics: CanaryMetrics) -> Canary:
    """Has the probes of the package that the settings leave room for, or its first answers of their sources."""
    spec = package.loadable.graphs.spec
    probes = list[KnownAnswer]()
    if settings.canary_interval_s:
        probes = known_answers(spec, package.loadable.rules, settings.max_source_tokens, settings.max_new_tokens)
        if not probes:
            log.warning("the canary of %s compares nothing: %s", package.name, _why_none(settings, spec))
    canary = Canary(package.name, probes, runner.submit, runner.workers, metrics)
    if probes and rounds_otherwise(spec.precision.weights, runner.device):
        await canary.learn()
    return canary


def rounds_otherwise(precision: Precision, device: Device) -> bool:
    """Whether a device may answer otherwise than export's did, which the probes are of: then its first are the known.

    Our own operators on CPUs sum few bits exactly; standard ones, and those of GPUs, each in their order.
    """
    return precision in FEW_BITS and not (device.kind == "cpu" and device.kernels)


def _why_none(settings: Settings, spec: GraphsSpec) -> str:
    if not (spec.probes or spec.vector_probes):
        return "the package has no probes, which export takes from sample sentences (--samples) that are short"
    limits = (settings.max_source_tokens, "source"), (settings.max_new_tokens, "target")
    told = " and ".join(f"{most} {side}" for most, side in limits if most is not None)
    return f"none of its probes has room in {told} tokens"


async def probe(submit: Callable[[Request], None], end_id: int) -> float:
    """Lets an engine decode once before there are callers. Returns the seconds. Raises DeviceError if it cannot.

    On CUDA the engine's thread captures its CUDA graphs thereby.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Event] = loop.create_future()
    started = time.perf_counter()
    submit(Probe((end_id,), partial(post, loop, answer)))
    event = await answer
    if isinstance(event, Failed):
        raise DeviceError(f"the model does not decode: {event.error}") from event.error
    return time.perf_counter() - started
