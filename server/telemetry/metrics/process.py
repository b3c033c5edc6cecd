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

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers what every server has."""
        self._registry = registry
        ProcessCollector(registry=registry)
        registry.register(DroppedLines())
        threads = Gauge("dragoman_threads", "Threads of the process.", registry=registry)
        threads.set_function(count_threads)
        self._state = Gauge("dragoman_server_state", "1 for the server's state.", ["state"], registry=registry)
        self.enter(State.STARTING)
        self._models = LoadedFamilies(registry)

    def enter(self, state: State) -> None:
        """The server is in this state, and in no other."""
        for other in State:
            self._state.labels(other.value).set(other is state)

    def model(self, name: str) -> "LoadedMetrics":
        """What is told of one model."""
        return LoadedMetrics(self._models, name)

    def describe_build(self, versions: Mapping[str, str]) -> None:
        """Tells what the server is made of: name -> version."""
        Info("dragoman_build", "Versions of the server and of what it runs on.", registry=self._registry).info(
            dict(versions)
        )

    def describe_device(self, facts: Mapping[str, str], asked: str) -> None:
        """Tells where the models run, by facts, and where they were asked to."""
        info = Info("dragoman_device", "The device that the models run on.", registry=self._registry)
        info.info({"asked": asked, **facts})

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


class LoadedFamilies:
    """What is told of every model that is loaded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers every metric."""
        self._registry = registry
        self.info = Info("dragoman_model", "The models that are served.", ["model"], registry=registry)
        self.load_seconds = self._gauge("dragoman_model_load_seconds", "Time until all models were ready.")
        self.loaded = self._gauge("dragoman_model_loaded_timestamp_seconds", "When that was, since the epoch.")
        self.probe_seconds = self._gauge("dragoman_probe_seconds", "Time of the decode before the server was ready.")
        self.cuda_graphs = self._gauge("dragoman_cuda_graphs", "1 if a decoder step is one launch of a CUDA graph.")
        self.queue_capacity = self._gauge("dragoman_queue_capacity", "Contents that may wait in the queue.")
        self.memory = self._gauge("dragoman_model_memory_bytes", "Memory that the model may come to take.")
        self.serving = self._gauge("dragoman_model_serving", "1 while the model is served, 0 once it has failed.")

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, ["model"], registry=self._registry)


class LoadedMetrics:
    """What is told of one of them."""

    def __init__(self, families: LoadedFamilies, model: str) -> None:
        """`model`: the name in the label of every series."""
        self._families, self._model = families, model

    def describe(self, package_sha256: str, provider: str, precision: str) -> None:
        """Tells what is served, and by which ONNX Runtime execution provider."""
        facts = {"package_sha256": package_sha256, "provider": provider, "precision": precision}
        self._families.info.labels(self._model).info(facts)

    def describe_engine(self, memory_bytes: int, queue_capacity: int, cuda_graphs: bool) -> None:
        """It may come to take so much memory, and so many contents may wait for it.

        cuda_graphs: whether a decoder step is launched as one.
        """
        self._families.memory.labels(self._model).set(memory_bytes)
        self._families.queue_capacity.labels(self._model).set(queue_capacity)
        self._families.cuda_graphs.labels(self._model).set(cuda_graphs)

    def loaded(self, seconds: float, probe_seconds: float) -> None:
        """It was ready after so long, now; the last part of it was one decode."""
        self._families.load_seconds.labels(self._model).set(seconds)
        self._families.loaded.labels(self._model).set(time.time())
        self._families.probe_seconds.labels(self._model).set(probe_seconds)
        self._families.serving.labels(self._model).set(1)

    def stopped(self) -> None:
        """Its engines are given up."""
        self._families.serving.labels(self._model).set(0)


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
