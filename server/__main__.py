"""`python -m server`: builds everything, serves until a signal, and ends cleanly.

Exit codes: 0 after a signal; 1 if the engine crashed; 2 for settings or a package that cannot be used.
"""

import asyncio
import logging
import sys
from importlib.metadata import version

import grpc
import uvloop
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from dragoman import __version__
from models.package import Package, PackageError
from models.tokenizer import TokenizerError
from server import service
from server.admission import Admission
from server.config import ConfigError, Settings, load_settings
from server.lifecycle import Health, StopSignals, close, drain, report_crash
from server.listeners import address, metrics_endpoint, open_server
from server.metrics import Metrics
from server.model import ServedModel, describe
from server.onnx_decoder import PROVIDER, OnnxDecoder, OnnxMemory
from server.rpc import RpcInterceptor
from server.scheduler import Scheduler
from server.search import EndRules
from server.translator import Translator

log = logging.getLogger("server")

HEALTH_SERVICE = "grpc.health.v1.Health"


def main() -> int:
    """Returns the exit code."""
    try:
        settings = load_settings(sys.argv[1:])
        logging.basicConfig(
            level=settings.log_level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        return uvloop.run(serve(settings))
    except (ConfigError, PackageError, TokenizerError) as error:
        print(f"python -m server: {error}", file=sys.stderr)
        return 2


async def serve(settings: Settings) -> int:
    """Serves until a signal. Raises ConfigError, PackageError or TokenizerError before that. Returns the exit code."""
    signals = StopSignals()
    crashed = asyncio.Event()
    package = Package.open(settings.package)
    model = describe(package, settings, PROVIDER)
    registry = CollectorRegistry()
    metrics = open_metrics(registry, model)
    calls = RpcInterceptor(service.SERVICES, settings.max_message_bytes, settings.stream_stall_timeout_s, metrics)
    server, port = open_server(settings, [calls])
    with metrics_endpoint(settings, registry) as metrics_port:
        with open_scheduler(settings, package, model, metrics, crashed) as scheduler:
            admission = Admission(settings.max_waiting, lambda: scheduler.waiting)
            translator = Translator(
                model, package.tokenizer(), admission, scheduler.submit, metrics, settings.max_contents
            )
            health = await start(server, translator)
            announce(settings, model, port, metrics_port)
            crash_report = asyncio.create_task(report_crash(crashed, health, admission))
            await signals.first.wait()
            await drain(health, admission, calls, settings.grace_period_s, signals.second)
            crash_report.cancel()
        await close(server, calls)
    return 1 if scheduler.crashed else 0


def open_metrics(registry: CollectorRegistry, model: ServedModel) -> Metrics:
    """The metrics of a server with this model."""
    metrics = Metrics(registry, model.name)
    metrics.describe_model(model.package_sha256, model.execution_provider, model.precision)
    metrics.describe_build(
        {"dragoman": __version__, "onnxruntime": version("onnxruntime"), "grpcio": version("grpcio")}
    )
    return metrics


def open_scheduler(
    settings: Settings, package: Package, model: ServedModel, metrics: Metrics, crashed: asyncio.Event
) -> Scheduler[OnnxMemory]:
    """Loads the model. `crashed` is set on this event loop when an engine fails."""
    config, generation = package.manifest.model, package.manifest.generation
    loop = asyncio.get_running_loop()

    def on_crash(error: Exception) -> None:
        loop.call_soon_threadsafe(crashed.set)

    return Scheduler(
        OnnxDecoder(
            package.encoder_graph, package.decoder_graph, config, model.max_source_tokens, model.max_new_tokens
        ),
        EndRules(config.end_id, generation.forced_end_id, generation.suppressed_ids),
        config.decoder_start_id,
        settings.workers,
        settings.max_rows,
        metrics,
        on_crash,
    )


async def start(server: grpc.aio.Server, translator: Translator) -> Health:
    """Adds all services and starts: serving."""
    health = Health(service.SERVICES)
    await health.register(server)
    service.register(server, translator)
    reflection.enable_server_reflection([*service.SERVICES, HEALTH_SERVICE, reflection.SERVICE_NAME], server)
    await server.start()
    await health.set(serving=True)
    return health


def announce(settings: Settings, model: ServedModel, port: int, metrics_port: int) -> None:
    """Logs that the server is ready, and where."""
    log.info(
        "serving %s on %s with %d workers of %d rows (%s); metrics on http://%s/metrics",
        model.name,
        address(settings.host, port),
        settings.workers,
        settings.max_rows,
        model.execution_provider,
        address(settings.host, metrics_port),
    )


if __name__ == "__main__":
    sys.exit(main())
