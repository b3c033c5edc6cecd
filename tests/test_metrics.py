"""server.metrics: what is counted, under which names."""

import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from server import metrics as module
from server.metrics import Metrics
from server.request import FinishReason, Timings

TIMINGS = Timings(queue=0.001, encode=0.002, decode=0.02, steps=5)
LABELS = {"model", "method", "code", "reason", "worker", "phase", "part", "le"}


class Counted:
    """Metrics of a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry, "en-pt")

    def __getitem__(self, name: str) -> float:
        return self.of(name, model="en-pt")

    def of(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(name, labels)
        assert value is not None, f"no sample {name} {labels}"
        return value


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_names_follow_prometheus_and_labels_are_bounded(counted: Counted) -> None:
    counted.metrics.rpc_started("m")
    counted.metrics.rpc_finished("m", "OK", 0.1)
    counted.metrics.refused("OVERLOADED")
    counted.metrics.live_rows(0, 1)
    counted.metrics.describe_model("ab", "CPUExecutionProvider", "fp32")
    counted.metrics.describe_build({"dragoman": "0.1.0"})
    counted.metrics.describe_device({"device": "cpu", "provider": "CPUExecutionProvider"}, cuda_graphs=False)
    families = list(text_string_to_metric_families(generate_latest(counted.registry).decode()))
    ours = [family for family in families if family.name.startswith("dragoman_")]
    assert len(ours) == 24
    assert not [family.name for family in ours if family.name.endswith("_created")]
    for family in ours:
        assert re.fullmatch(r"dragoman_[a-z]+(_[a-z]+)*", family.name)
        assert not re.search(r"_(ms|us|milliseconds|minutes|kb|mb)\b", family.name)
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.name.endswith("_info") or set(sample.labels) <= LABELS, sample


def test_the_process_is_described(counted: Counted) -> None:
    assert counted.of("process_resident_memory_bytes") > 1e6
    assert counted.of("process_start_time_seconds") > 0


@pytest.mark.parametrize("buckets", ["LATENCY_SECONDS", "PHASE_SECONDS", "TOKEN_SECONDS", "STEP_ROWS"])
def test_buckets_rise(buckets: str) -> None:
    values = list(getattr(module, buckets))
    assert values == sorted(set(values))


def test_buckets_reach_from_refusals_to_long_deadlines_and_below_a_millisecond_between_tokens() -> None:
    assert module.LATENCY_SECONDS[0] == 0.0005
    assert module.LATENCY_SECONDS[-1] == 60
    assert module.TOKEN_SECONDS[0] == 0.0001


def test_a_step_is_counted_whole_and_by_part(counted: Counted) -> None:
    counted.metrics.step(rows=8, seconds=0.005, model_seconds=0.004)
    counted.metrics.step(rows=2, seconds=0.001, model_seconds=0.0005)
    assert counted["dragoman_steps_total"] == 2
    assert counted["dragoman_rows_computed_total"] == 10
    assert counted["dragoman_step_rows_sum"] == 10
    assert counted.of("dragoman_step_rows_bucket", model="en-pt", le="2.0") == 1
    assert counted.of("dragoman_step_seconds_total", model="en-pt", part="model") == pytest.approx(0.0045)
    assert counted.of("dragoman_step_seconds_total", model="en-pt", part="engine") == pytest.approx(0.0015)


def test_time_between_tokens_is_counted_apart_from_the_step(counted: Counted) -> None:
    counted.metrics.inter_token(0.007)
    assert counted["dragoman_inter_token_seconds_count"] == 1
    assert counted["dragoman_inter_token_seconds_sum"] == pytest.approx(0.007)


def test_a_translation_counts_its_phases_tokens_and_end(counted: Counted) -> None:
    counted.metrics.tokenized(0.00003)
    counted.metrics.first_token(0.004)
    counted.metrics.finished(FinishReason.LENGTH, TIMINGS, source_tokens=7, target_tokens=9)
    counted.metrics.detokenized(0.00004)
    phases = {phase: counted.of("dragoman_phase_duration_seconds_sum", model="en-pt", phase=phase) for phase in PHASES}
    assert phases == pytest.approx(
        {"queue": 0.001, "tokenize": 0.00003, "encode": 0.002, "decode": 0.02, "detokenize": 0.00004}
    )
    assert counted["dragoman_time_to_first_token_seconds_sum"] == pytest.approx(0.004)
    assert counted["dragoman_source_tokens_total"] == 7
    assert counted["dragoman_target_tokens_total"] == 9
    assert counted.of("dragoman_finished_total", model="en-pt", reason="length") == 1
    assert counted.of("dragoman_finished_total", model="en-pt", reason="end_token") == 0


PHASES = ("queue", "tokenize", "encode", "decode", "detokenize")


def test_an_encoding_has_no_decode_phase(counted: Counted) -> None:
    counted.metrics.encoded(TIMINGS, source_tokens=7)
    counts = {
        phase: counted.of("dragoman_phase_duration_seconds_count", model="en-pt", phase=phase) for phase in PHASES
    }
    assert counts == {"queue": 1, "tokenize": 0, "encode": 1, "decode": 0, "detokenize": 0}
    assert counted["dragoman_source_tokens_total"] == 7


def test_an_rpc_is_in_flight_until_it_is_finished(counted: Counted) -> None:
    counted.metrics.rpc_started("s/Translate")
    assert counted.of("dragoman_rpc_in_flight", method="s/Translate") == 1
    counted.metrics.rpc_finished("s/Translate", "UNAVAILABLE", 0.3)
    assert counted.of("dragoman_rpc_in_flight", method="s/Translate") == 0
    assert counted.of("dragoman_rpc_requests_total", method="s/Translate", code="UNAVAILABLE") == 1
    assert counted.of("dragoman_rpc_duration_seconds_sum", method="s/Translate") == pytest.approx(0.3)


def test_gauges_and_the_other_counters(counted: Counted) -> None:
    counted.metrics.live_rows(1, 5)
    counted.metrics.capacity(128)
    counted.metrics.waiting(3)
    counted.metrics.moved_rows(4)
    counted.metrics.cancelled()
    counted.metrics.refused("OVERLOADED")
    assert counted.of("dragoman_rows_live", model="en-pt", worker="1") == 5
    assert counted["dragoman_rows_capacity"] == 128
    assert counted["dragoman_requests_waiting"] == 3
    assert counted["dragoman_cache_rows_moved_total"] == 4
    assert counted["dragoman_cancellations_total"] == 1
    assert counted.of("dragoman_refusals_total", reason="OVERLOADED") == 1


def test_model_and_build_are_described(counted: Counted) -> None:
    counted.metrics.describe_model("ab" * 32, "CPUExecutionProvider", "fp32")
    counted.metrics.describe_build({"dragoman": "0.1.0"})
    labels = {"model": "en-pt", "package_sha256": "ab" * 32, "provider": "CPUExecutionProvider", "precision": "fp32"}
    assert counted.of("dragoman_model_info", **labels) == 1
    assert counted.of("dragoman_build_info", dragoman="0.1.0") == 1
