"""What the process tells of itself: its state, the model and the device. docs/metrics.md says what each is good for."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, Info, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from server.telemetry.logs import dropped_lines

THREADS = Path("/proc/self/task")
"""One folder for every thread of the process, those of native libraries included (Linux)."""


class State(Enum):
    """Where the server is in its life."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"


class ProcessMetrics:
    """The facts that the parts of the server do not count, set by whoever starts it."""

    def __init__(self, registry: CollectorRegistry, model: str = "default") -> None:
        """Registers what every server has; `model` is the label of what belongs to a model."""
        self._registry, self._model = registry, model
        ProcessCollector(registry=registry)
        registry.register(DroppedLines())
        threads = Gauge("dragoman_threads", "Threads of the process.", registry=registry)
        threads.set_function(count_threads)
        self._state = Gauge("dragoman_server_state", "1 for the server's state.", ["state"], registry=registry)
        self.enter(State.STARTING)
        self._load_seconds = self._gauge("dragoman_model_load_seconds", "Time until the model was ready.")
        self._loaded = self._gauge("dragoman_model_loaded_timestamp_seconds", "When that was, since the epoch.")
        self._probe_seconds = self._gauge("dragoman_probe_seconds", "Time of the decode before the server was ready.")
        self._cuda_graphs = self._gauge("dragoman_cuda_graphs", "1 if a decoder step is one launch of a CUDA graph.")
        self._queue_capacity = self._gauge("dragoman_queue_capacity", "Contents that may wait in the queue.")

    def enter(self, state: State) -> None:
        """The server is in this state, and in no other."""
        for other in State:
            self._state.labels(other.value).set(other is state)

    def describe_build(self, versions: Mapping[str, str]) -> None:
        """Tells what the server is made of: name -> version."""
        Info("dragoman_build", "Versions of the server and of what it runs on.", registry=self._registry).info(
            dict(versions)
        )

    def describe_model(self, package_sha256: str, provider: str, precision: str) -> None:
        """Tells what is served, and by which ONNX Runtime execution provider."""
        info = Info("dragoman_model", "The model that is served.", ["model"], registry=self._registry)
        facts = {"package_sha256": package_sha256, "provider": provider, "precision": precision}
        info.labels(self._model).info(facts)

    def describe_device(self, facts: Mapping[str, str], asked: str, cuda_graphs: bool) -> None:
        """Tells where the model runs, by facts, and where it was asked to.

        cuda_graphs: whether a decoder step is launched as one.
        """
        info = Info("dragoman_device", "The device that the model runs on.", registry=self._registry)
        info.info({"asked": asked, **facts})
        self._cuda_graphs.set(cuda_graphs)

    def watch_device_memory(self, memory: Callable[[], tuple[float, float]]) -> None:
        """Shows the free and total bytes of a device. `memory` is called at every scrape, on its thread."""
        family = Gauge("dragoman_device_memory_bytes", "Memory of the device.", ["kind"], registry=self._registry)
        family.labels("total").set_function(lambda: memory()[1])
        family.labels("used").set_function(lambda: used(*memory()))

    def describe_certificate(self, expiry: Callable[[], float]) -> None:
        """When the TLS certificate ends, in seconds since the epoch. Called at every scrape, on its thread."""
        Gauge(
            "dragoman_tls_certificate_expiry_timestamp_seconds",
            "When the TLS certificate ends, since the epoch.",
            registry=self._registry,
        ).set_function(expiry)

    def describe_queue(self, capacity: int) -> None:
        """So many contents may wait."""
        self._queue_capacity.set(capacity)

    def loaded(self, seconds: float, probe_seconds: float) -> None:
        """The model was ready after so long, now; the last part of it was one decode."""
        self._load_seconds.set(seconds)
        self._loaded.set(time.time())
        self._probe_seconds.set(probe_seconds)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, ["model"], registry=self._registry).labels(self._model)


class DroppedLines(Collector):
    """Lines of the log that were dropped."""

    def collect(self) -> Iterator[Metric]:
        """As it is now."""
        meaning = "Lines of the log that were dropped because standard error was not read."
        yield CounterMetricFamily("dragoman_log_lines_dropped", meaning, value=dropped_lines())


def count_threads() -> int:
    """Threads of this process; where the system does not tell, only those that Python knows."""
    try:
        return len(list(THREADS.iterdir()))
    except OSError:
        return threading.active_count()


def used(free: float, total: float) -> float:
    """Bytes that are in use."""
    return total - free
