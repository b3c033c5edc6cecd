"""server.telemetry.metrics.process: what the process tells of itself."""

import threading
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from server.telemetry.metrics import process as process_metrics
from server.telemetry.metrics.process import ProcessMetrics, State, count_threads


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def process(registry: CollectorRegistry) -> ProcessMetrics:
    return ProcessMetrics(registry)


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float:
    value = registry.get_sample_value(name, labels)
    assert value is not None, f"no sample {name} {labels}"
    return value


def test_the_process_is_described(registry: CollectorRegistry, process: ProcessMetrics) -> None:
    assert sample(registry, "process_resident_memory_bytes") > 1e6
    assert sample(registry, "process_start_time_seconds") > 0


def test_it_is_in_one_state_at_a_time(registry: CollectorRegistry, process: ProcessMetrics) -> None:
    def states() -> list[State]:
        return [state for state in State if sample(registry, "dragoman_server_state", state=state.value)]

    assert states() == [State.STARTING]
    for state in State:
        process.enter(state)
        assert states() == [state]


def test_threads_are_counted_when_asked(registry: CollectorRegistry, process: ProcessMetrics) -> None:
    before, done = sample(registry, "dragoman_threads"), threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert sample(registry, "dragoman_threads") == before + 1
    finally:
        done.set()
        thread.join()


def test_without_proc_python_tells_its_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_metrics, "THREADS", tmp_path / "none")
    assert count_threads() == threading.active_count()


def test_model_and_build_are_described(registry: CollectorRegistry, process: ProcessMetrics) -> None:
    process.model("en-pt").describe("ab" * 32, "CPUExecutionProvider", "fp32")
    process.describe_build({"dragoman": "0.1.0"})
    labels = {"model": "en-pt", "package_sha256": "ab" * 32, "provider": "CPUExecutionProvider", "precision": "fp32"}
    assert sample(registry, "dragoman_model_info", **labels) == 1
    assert sample(registry, "dragoman_build_info", dragoman="0.1.0") == 1


def test_what_was_asked_for_stands_beside_what_is_used(registry: CollectorRegistry, process: ProcessMetrics) -> None:
    process.describe_device({"device": "cpu", "provider": "CPUExecutionProvider"}, "auto")
    labels = {"asked": "auto", "device": "cpu", "provider": "CPUExecutionProvider"}
    assert sample(registry, "dragoman_device_info", **labels) == 1


def test_the_memory_of_a_device_is_read_at_every_scrape(registry: CollectorRegistry, process: ProcessMetrics) -> None:
    free = [7.0]
    process.watch_device_memory(lambda: (free[0], 10.0))
    for free[0], used in ((7.0, 3), (4.0, 6)):
        assert sample(registry, "dragoman_device_memory_bytes", kind="used") == used
        assert sample(registry, "dragoman_device_memory_bytes", kind="total") == 10


def test_loading_is_timed_and_dated(registry: CollectorRegistry, process: ProcessMetrics) -> None:
    began = time.time()
    model = process.model("en-pt")
    model.loaded(seconds=2.5, probe_seconds=0.004)
    model.describe_engine(memory_bytes=7, queue_capacity=1024, cuda_graphs=False)
    assert sample(registry, "dragoman_model_load_seconds", model="en-pt") == 2.5
    assert sample(registry, "dragoman_probe_seconds", model="en-pt") == 0.004
    assert began <= sample(registry, "dragoman_model_loaded_timestamp_seconds", model="en-pt") <= time.time()
    assert sample(registry, "dragoman_queue_capacity", model="en-pt") == 1024
    assert sample(registry, "dragoman_model_memory_bytes", model="en-pt") == 7
    assert sample(registry, "dragoman_cuda_graphs", model="en-pt") == 0


def test_a_model_that_has_failed_is_told_apart(registry: CollectorRegistry, process: ProcessMetrics) -> None:
    for name in ("en-pt", "pt-en"):
        process.model(name).loaded(seconds=1.0, probe_seconds=0.001)
    process.model("pt-en").stopped()
    assert [sample(registry, "dragoman_model_serving", model=name) for name in ("en-pt", "pt-en")] == [1, 0]
