"""Models that this process serves to itself, on an event loop in a thread of its own."""

import asyncio
import atexit
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import uvloop
from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from pydantic_settings import PydanticBaseSettingsSource

from engine.devices.machine import Machine, usable_cores
from engine.devices.memory import give_back_freed
from engine.devices.session import DeviceError
from engine.loading.load import Kernels
from models.package.checked import PackageError
from models.package.seal import SealError
from models.tokenizers.tokenizer import TokenizerError
from server.admission.quotas import Quota, Quotas
from server.api import service
from server.api.documents import Documents
from server.catalog.catalog import Catalog
from server.catalog.packages import open_packages
from server.config import ConfigError, Settings, explained
from server.errors import Draining
from server.grpc.health import Health
from server.lifecycle import report_crash
from server.loaded import LoadedModel, load_models
from server.local.channel import Handlers, LocalChannel
from server.placement import serving_device
from server.telemetry.logs import CallLog
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.metrics.caller import CallerMetrics
from server.telemetry.observed import ObservedCalls
from server.telemetry.tracing import open_tracing
from server.text.documents.document import Limits
from server.traffic.held import Held

DEFAULT_WAITING: int = Settings.model_fields["max_waiting"].default
WAITING_PER_CORE = 128
"""Texts that may wait for each core: two for every row of its worker's batch, where a server has as many callers as
come, and one of them here may have all there is to do."""


class GivenSettings(Settings):
    """Those that are given here, and no others: the environment's are a server's."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[Any],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def settings_of(
    packages: Sequence[Path],
    device: Literal["cpu", "cuda", "auto"],
    kernels: Kernels,
    workers: int | None,
    max_rows: int | None,
    memory_mb: int | None,
) -> Settings:
    """Of an engine in this process: as a server has them, with no canary. Raises ConfigError."""
    return given_settings(
        {
            "package": tuple(packages),
            "device": device,
            "kernels": kernels,
            "workers": workers,
            "max_rows": max_rows,
            "memory_mb": memory_mb,
            "max_waiting": max(DEFAULT_WAITING, WAITING_PER_CORE * usable_cores()),
            "canary_interval_s": 0.0,
        }
    )


def given_settings(values: Mapping[str, Any]) -> Settings:
    """These, and the defaults of all others. Raises ConfigError."""
    try:
        return GivenSettings(**values)
    except ValidationError as error:
        raise ConfigError(explained(error)) from error


class LocalEngine:
    """Loads models when it is made, and ends them when it is closed."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError."""
        self._loop: asyncio.AbstractEventLoop
        self._closing: asyncio.Event
        self._loaded: list[LoadedModel] = []
        opened = Future[LocalChannel]()
        self._thread = threading.Thread(target=self._live, args=(settings, opened), name="local", daemon=True)
        self._thread.start()
        self.channel = opened.result()
        atexit.register(self._stop_workers)

    def leave(self) -> None:
        """As `close`, without waiting: from any thread."""
        self.channel.end()
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._closing.set)

    def close(self) -> None:
        """Ends what is under way, and frees the models. Does nothing if it is closed."""
        self.leave()
        self._thread.join()
        atexit.unregister(self._stop_workers)

    def _stop_workers(self) -> None:
        """At the end of the process, when nothing can be awaited any more: no thread is left in a step."""
        for one in self._loaded:
            one.runner.close()

    def _live(self, settings: Settings, opened: Future[LocalChannel]) -> None:
        """The thread of the event loop."""
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(settings, opened))
        except (ConfigError, PackageError, SealError, TokenizerError, DeviceError) as error:
            opened.set_exception(error if isinstance(error, ConfigError) else ConfigError(str(error)))
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            self._loaded = []
            give_back_freed()

    async def _serve(self, settings: Settings, opened: Future[LocalChannel]) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        registry = CollectorRegistry()
        calls = ObservedCalls(CallMetrics(registry), open_tracing(settings, ""), CallLog(settings))
        quotas = Quotas(Quota(), CallerMetrics(registry))
        packages = open_packages(settings)
        device = serving_device(settings, [one.package.manifest.graphs for one in packages], Machine())
        async with load_models(settings, packages, device, registry, quotas) as loaded:
            self._loaded = list(loaded)
            failing = [report_crash(asyncio.wrap_future(one.runner.failure), one.admission) for one in loaded]
            watching = list(map(asyncio.create_task, failing))
            handlers, most_bytes = handlers_of(self._loaded, settings), settings.max_message_bytes
            channel = LocalChannel(self._loop, handlers, calls, most_bytes, self.close)
            opened.set_result(channel)
            del handlers
            await self._closing.wait()
            calls.end(Draining())
            await calls.wait_until_idle()
            channel.forget()
            for task in watching:
                task.cancel()


def handlers_of(loaded: Sequence[LoadedModel], settings: Settings) -> Handlers:
    """Of all services of the API. Whoever runs the models themselves may go by way of a third language."""
    limits = Limits(settings.max_document_bytes, settings.max_document_texts)
    documents = Documents(limits, Held(settings.max_document_bytes))
    handlers, health = Handlers(), Health(service.SERVICES)
    as_server: Any = handlers  # as far as services are added to one
    health.register(as_server)
    health.set(serving=True)
    service.register(as_server, Catalog([one.translator for one in loaded]), documents, pivots=True)
    return handlers
