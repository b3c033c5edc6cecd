"""Takes up new versions of models while they are served.

    open -> room for both? -> load beside -> decode once -> certificate -> shadow -> promote -> end the former

A candidate that fails anywhere replaces nothing: the one before serves on, and the reason is logged, counted and told.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from engine.devices.memory import give_back_freed
from engine.devices.session import DeviceError
from models.package.checked import PackageError
from models.package.seal import SealError
from models.tokenizers.tokenizer import TokenizerError
from server.catalog.catalog import Catalog
from server.catalog.packages import OpenPackage, open_again
from server.catalog.reloading import Reloaded
from server.config import ConfigError, Settings
from server.errors import CandidateRefused, Draining, ReloadUnderWay
from server.loaded import LoadedModel, LoadedModels
from server.telemetry.metrics.version import VersionMetrics
from server.telemetry.observed import ObservedCalls
from server.translation.translator import Translator
from server.versions.rule import Comparison, Rule
from server.versions.shadow import Shadow

log = logging.getLogger(__name__)

LET_GO_S = 0.5
"""That a version which is closed may be held by what is ending."""
UNUSABLE = (PackageError, SealError, TokenizerError, ConfigError, DeviceError)


class Versions:
    """Of all models, one at a time. On the event loop."""

    def __init__(
        self,
        settings: Settings,
        loaded: LoadedModels,
        models: Catalog[Translator],
        calls: ObservedCalls,
        metrics: VersionMetrics,
        promoted: Callable[[LoadedModel, float], None],
    ) -> None:
        """promoted: is told what serves from now on, and in how many seconds it was loaded and checked."""
        self._settings, self._loaded, self._models, self._calls = settings, loaded, models, calls
        self._metrics, self._promoted = metrics, promoted
        self._rule = Rule(
            settings.shadow_share,
            settings.shadow_contents,
            settings.shadow_equal_texts,
            settings.shadow_score_difference,
            settings.shadow_slowdown,
            settings.shadow_timeout_s,
        )
        self._reloading: str | None = None
        self._tasks = set[asyncio.Task[Any]]()

    async def __call__(self, name: str) -> Reloaded:
        """See `server.catalog.reloading.Reload`. Goes on when the one who asked has left."""
        model = self._models.find(name, field="name").model
        if self._reloading is not None:
            raise ReloadUnderWay(self._reloading)
        self._reloading = model.name
        reloading = self._start(self._reload(model.name))
        try:
            done: Reloaded = await asyncio.shield(reloading)
        except asyncio.CancelledError:
            if reloading.cancelled():  # and not the one who asked
                raise Draining from None
            raise
        return done

    def close(self) -> None:
        """The process ends: nothing is taken up any more."""
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _reload(self, name: str) -> Reloaded:
        served = next(one for one in self._loaded if one.model.name == name)
        try:
            return await self._replace(served)
        except (CandidateRefused, *UNUSABLE) as error:
            refusal = error if isinstance(error, CandidateRefused) else CandidateRefused(name, str(error))
            log.error("%s", refusal)
            self._metrics.refused(name)
            raise refusal from error
        except Exception as error:
            log.exception("the package of %s is not taken up, and the one before goes on", name)
            self._metrics.refused(name)
            raise CandidateRefused(name, "the server has a defect, of which its log says more") from error
        finally:
            self._reloading = None

    async def _replace(self, served: LoadedModel) -> Reloaded:
        began, name = time.perf_counter(), served.model.name
        package = await asyncio.to_thread(open_again, self._settings, served.package)
        former = served.model.package_sha256
        if package.package.sha256 == former:
            log.info("the package of %s is the one that is served: %s", name, former)
            self._metrics.current(name)
            return Reloaded(name, former)
        if package.name != name:
            raise CandidateRefused(name, f"its folder has a package of the name {package.name}: put that elsewhere")
        candidate, comparison = await self._checked(package, served)
        self._promote(candidate, served, time.perf_counter() - began)
        return Reloaded(name, former, comparison)

    async def _checked(self, package: OpenPackage, served: LoadedModel) -> tuple[LoadedModel, Comparison | None]:
        """Loads a candidate, and compares what it answers. Raises CandidateRefused, or why it does not load."""
        candidate = await self._loaded.load_beside(package, served)
        try:
            if not await candidate.canary.check():
                raise CandidateRefused(
                    served.model.name, "it does not answer its probes as its certificate has it; the log says which"
                )
            comparison = await self._compared(candidate, served) if self._rule.share else None
        except BaseException:
            await self._loaded.end(candidate.runner)
            raise
        return candidate, comparison

    async def _compared(self, candidate: LoadedModel, served: LoadedModel) -> Comparison:
        """Has it answer live requests, too. Raises CandidateRefused."""
        shadow = Shadow(self._rule, served, candidate, self._metrics)
        served.translator.listener = shadow.offer
        try:
            objection = await shadow.verdict()
        finally:
            served.translator.listener = None
        if objection is not None:
            raise CandidateRefused(served.model.name, f"beside the one that serves, {objection}")
        return shadow.comparison

    def _promote(self, candidate: LoadedModel, served: LoadedModel, seconds: float) -> None:
        """Nothing is awaited here: calls find one or the other."""
        self._loaded.promote(candidate, served)
        self._models.replace(candidate.translator)
        self._metrics.promoted(served.model.name)
        self._promoted(candidate, seconds)
        log.info(
            "%s is served of package %s, no longer of %s: taken up in %.1f s",
            served.model.name,
            candidate.model.package_sha256[:12],
            served.model.package_sha256[:12],
            seconds,
        )
        self._start(self._end(served)).add_done_callback(_give_back_freed)

    async def _end(self, served: LoadedModel) -> None:
        """Once every call is over that may have found it."""
        await self._calls.wait_for_present()
        await self._loaded.retire(served)
        log.info("package %s of %s is closed", served.model.package_sha256[:12], served.model.name)


def _give_back_freed(_: "asyncio.Task[None]") -> None:
    """When the threads of a version that is closed have let go of it, too. It takes some milliseconds."""
    loop = asyncio.get_running_loop()
    loop.call_later(LET_GO_S, loop.run_in_executor, None, give_back_freed)
