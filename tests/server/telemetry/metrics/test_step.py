"""server.telemetry.metrics.step: what engines count."""

import time

import pytest
from prometheus_client import CollectorRegistry

from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.telemetry.metrics.step import WorkerMetrics


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> ModelMetrics:
    return ModelMetrics(ModelFamilies(registry), "en-pt")


@pytest.fixture
def worker(metrics: ModelMetrics) -> WorkerMetrics:
    return metrics.worker(1)


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float:
    value = registry.get_sample_value(name, {"model": "en-pt", **labels})
    assert value is not None, f"no sample {name} {labels}"
    return value


def test_a_step_is_counted_whole_and_by_part(registry: CollectorRegistry, worker: WorkerMetrics) -> None:
    worker.steps(1, rows=8, seconds=0.005, model_seconds=0.004)
    worker.steps(3, rows=2, seconds=0.001, model_seconds=0.0005)
    assert sample(registry, "dragoman_steps_total") == 4
    assert sample(registry, "dragoman_rows_computed_total") == 14
    assert sample(registry, "dragoman_step_rows_sum") == 14
    assert sample(registry, "dragoman_step_rows_bucket", le="2.0") == 3
    assert sample(registry, "dragoman_step_seconds_total", part="model") == pytest.approx(0.0045)
    assert sample(registry, "dragoman_step_seconds_total", part="engine") == pytest.approx(0.0015)


def test_a_step_leaves_its_time(registry: CollectorRegistry, worker: WorkerMetrics) -> None:
    began = time.time()
    worker.steps(1, rows=1, seconds=0.001, model_seconds=0.001)
    assert began <= sample(registry, "dragoman_last_step_timestamp_seconds", worker="1") <= time.time()


def test_a_worker_without_a_step_has_the_time_when_it_was_ready(registry: CollectorRegistry) -> None:
    began = time.time()
    ModelMetrics(ModelFamilies(registry), "en-pt").worker(0)
    assert began <= sample(registry, "dragoman_last_step_timestamp_seconds", worker="0") <= time.time()
    assert sample(registry, "dragoman_rows_live", worker="0") == 0


def test_time_between_tokens_is_counted_apart_from_the_step(registry: CollectorRegistry, worker: WorkerMetrics) -> None:
    worker.inter_token(0.007, 2)
    assert sample(registry, "dragoman_inter_token_seconds_count") == 2
    assert sample(registry, "dragoman_inter_token_seconds_sum") == pytest.approx(0.014)


def test_waste_is_counted_by_its_reason(registry: CollectorRegistry, worker: WorkerMetrics) -> None:
    worker.encoded(source_tokens=10, computed_tokens=16)
    worker.answered(computed_rows=40, best_rows=11)
    worker.dropped(computed_rows=3)
    worker.moved(4, 4096)
    assert sample(registry, "dragoman_encoder_tokens_total", kind="source") == 10
    assert sample(registry, "dragoman_encoder_tokens_total", kind="padding") == 6
    assert sample(registry, "dragoman_rows_wasted_total", reason="hypotheses") == 29
    assert sample(registry, "dragoman_rows_wasted_total", reason="cancelled") == 3
    assert sample(registry, "dragoman_cache_rows_moved_total") == 4
    assert sample(registry, "dragoman_cache_moved_bytes_total") == 4096


def test_workers_have_gauges_of_their_own_and_share_the_capacity(
    registry: CollectorRegistry, metrics: ModelMetrics, worker: WorkerMetrics
) -> None:
    metrics.worker(0).holds(rows=2, tokens=20)
    worker.holds(rows=5, tokens=60)
    metrics.capacity(rows=128, row_tokens=1024)
    assert [sample(registry, "dragoman_rows_live", worker=number) for number in "01"] == [2, 5]
    assert [sample(registry, "dragoman_cache_tokens", worker=number) for number in "01"] == [20, 60]
    assert sample(registry, "dragoman_rows_capacity") == 128
    assert sample(registry, "dragoman_cache_tokens_capacity") == 128 * 1024


def test_what_a_candidate_counted_before_it_serves_is_taken_away(registry: CollectorRegistry) -> None:
    families = ModelFamilies(registry)
    ModelMetrics(families, "en-pt").worker(0).steps(1, rows=8, seconds=0.005, model_seconds=0.004)
    candidate = ModelMetrics(ModelFamilies(CollectorRegistry()), "en-pt")
    worker = candidate.worker(0)
    worker.steps(2, rows=3, seconds=0.25, model_seconds=0.125)
    worker.inter_token(0.125, 2)
    worker.dropped(5)
    candidate.count_in(families)
    assert sample(registry, "dragoman_rows_computed_total") == 8
    worker.steps(1, rows=4, seconds=0.25, model_seconds=0.125)
    assert sample(registry, "dragoman_rows_computed_total") == 12
    assert sample(registry, "dragoman_step_rows_count") == 2
    assert sample(registry, "dragoman_step_rows_bucket", le="3.0") == 0
    assert sample(registry, "dragoman_inter_token_seconds_sum") == 0
    assert sample(registry, "dragoman_rows_wasted_total", reason="cancelled") == 0
    assert sample(registry, "dragoman_step_seconds_total", part="model") == 0.129
