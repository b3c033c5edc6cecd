"""What a server is built of, in order, and how long each part lives."""

import logging
import sys
import threading
import time
import webbrowser
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import onnxruntime as ort
import uvloop

from dragoman import __version__
from engine.devices.machine import Machine
from engine.devices.session import DeviceError
from models.package.checked import PackageError
from models.package.seal import SealError
from models.tokenizers.tokenizer import TokenizerError
from server.admission.shedding import Shedding
from server.catalog.packages import open_packages
from server.config import ConfigError, Settings
from server.front import Front
from server.http import missing_modules
from server.identity.tls import warn_of_exposure
from server.lifecycle import StopSignals, end_process
from server.loaded import LoadedModel, load_models
from server.placement import device_memory, facts, serving_device, warn_of_memory
from server.running import OBSERVED, RunningServer, describe
from server.telemetry import logs
from server.telemetry.exposition.endpoint import metrics_endpoint
from server.telemetry.tracing import Tracing, open_tracing
from server.traffic.arena import share_arena
from server.traffic.ports import address

if TYPE_CHECKING:
    from server.http.opening import HttpPort

log = logging.getLogger("server")

SWITCH_INTERVAL_S = 0.0005
"""How long an engine's thread waits for the interpreter, after its step, while the event loop is busy. Python's own
5 ms are several steps of a small model."""


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
    warn_of_memory(settings.memory_mb)
    front = Front(settings, tracing, OBSERVED)
    # Which of several models a call is for, its request says: nobody is refused before for what another model lacks.
    server, port = front.open_port(Shedding() if len(packages) == 1 else None)
    http_port = own_http_port(settings, port)
    if front.reads_files:  # before anybody is told that it serves: without, the signal would end it
        signals.on_hangup(front.reloads.asked.set)
    with metrics_endpoint(settings, front.registry) as metrics:
        counted = front.registry, front.quotas, front.bounds.bytes
        async with load_models(settings, packages, device, *counted, signals.engines_left_s) as loaded:
            describe(front.process, settings, loaded, time.perf_counter() - started)
            if device.kind == "cuda":  # not before: the probes capture CUDA graphs, which other calls may disturb
                front.process.watch_device_memory(device_memory(machine.runtime(), device.index))
            running = RunningServer(settings, front, loaded, server)
            await running.begin(http_port, metrics.page)
            announce(settings, loaded, port, metrics.port)
            if http_port is not None:
                announce_http(settings, http_port.address)
            running.watch(device)
            await signals.first.wait()
            await running.end(signals)
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


def announce_http(settings: Settings, reached: str) -> None:
    """Logs where its pages are, by host and port, and opens them in a browser where that is wanted."""
    scheme = "https" if settings.tls_certificate else "http"
    log.info("HTTP on %s://%s: /docs says what there is", scheme, reached)
    if settings.open:  # on another thread: some browsers are waited for
        threading.Thread(target=webbrowser.open, args=[f"{scheme}://{reached}/"], daemon=True).start()
