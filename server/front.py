"""What stands before a server's models: who calls, how much at a time, and what is counted of it."""

from collections.abc import Sequence
from importlib.metadata import version

import grpc
import onnxruntime as ort
from prometheus_client import CollectorRegistry

from dragoman import __version__
from server.admission.quotas import Quota, Quotas
from server.admission.shedding import Shedding
from server.config import Settings
from server.grpc.listeners import open_server
from server.grpc.rpc import RpcInterceptor
from server.identity.door import OpenDoor
from server.identity.entrance import Entrance
from server.identity.opening import open_door
from server.identity.reloads import Reloads
from server.identity.tls import open_tls
from server.placement import host_limit
from server.telemetry.logs import CallLog
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.metrics.caller import QUOTAS, CallerMetrics
from server.telemetry.metrics.process import ProcessMetrics
from server.telemetry.metrics.reload import ReloadMetrics
from server.telemetry.observed import ObservedCalls
from server.telemetry.tracing import Tracing
from server.traffic.bounds import Bounds
from server.traffic.traffic import Traffic


class Front:
    """That of one server. Made on its event loop."""

    def __init__(self, settings: Settings, tracing: Tracing, observed: Sequence[str]) -> None:
        """observed: full names of the services whose calls are counted, traced and logged. Raises ConfigError."""
        self._settings, self._observed = settings, observed
        self.registry = CollectorRegistry()
        self.process = open_process_metrics(self.registry)
        self.calls = ObservedCalls(CallMetrics(self.registry), tracing, CallLog(settings))
        self.bounds = Bounds.within(settings, host_limit(settings))
        self.traffic = Traffic.of(settings, self.bounds)
        callers = CallerMetrics(self.registry)
        self.quotas = Quotas(Quota(**{name: getattr(settings, f"quota_{name}") for name in QUOTAS}), callers)
        door, sources = open_door(settings, callers.know)
        self.entrance = Entrance(door, self.quotas, settings.caller_key)
        self.asks_for_keys = not isinstance(door, OpenDoor)
        self.tls = tls = open_tls(settings)
        if tls is not None:
            sources.append(tls.source)
            self.process.describe_certificate(lambda: tls.expiry)
        self.reloads = Reloads(sources, ReloadMetrics(self.registry, [source.name for source in sources]))
        self.reads_files = bool(sources)
        """That may change while it serves, and are read again at SIGHUP."""

    def open_port(self, shedding: Shedding | None = None) -> tuple[grpc.aio.Server, int]:
        """The gRPC server, bound but not started, and its port. Raises ConfigError.

        shedding: refuses calls before they are read
        """
        interceptor = RpcInterceptor(self._observed, self.traffic, self.calls, self.entrance, shedding)
        credentials = None if self.tls is None else self.tls.credentials()
        return open_server(self._settings, self.bounds, [interceptor], credentials)


def open_process_metrics(registry: CollectorRegistry) -> ProcessMetrics:
    """The metrics of a process that is starting."""
    process = ProcessMetrics(registry)
    process.describe_build({"dragoman": __version__, "onnxruntime": ort.__version__, "grpcio": version("grpcio")})
    return process
