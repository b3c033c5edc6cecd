"""server.telemetry: what of calls and contents is counted, under which names."""

import re
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from engine.request import PHASES, FinishReason
from kernels.library import Counters
from server.config import Settings
from server.telemetry.guards import GuardFlag
from server.telemetry.metrics import step as step_metrics
from server.telemetry.metrics.call import FAULTS, LATENCY_SECONDS, CallMetrics, fault_reasons
from server.telemetry.metrics.model import PHASE_SECONDS, ModelFamilies, ModelMetrics
from tests.watch.families import TIMINGS, TRACE, everything

LABELS = {
    "caller",
    "quota",
    "cause",
    "result",
    "model",
    "method",
    "code",
    "reason",
    "worker",
    "phase",
    "part",
    "flag",
    "kind",
    "source",
    "state",
    "le",
}


class Counted:
    """Metrics of a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.calls = CallMetrics(self.registry)
        self.families = ModelFamilies(self.registry)
        self.metrics = ModelMetrics(self.families, "en-pt")

    def __getitem__(self, name: str) -> float:
        return self.of(name, model="en-pt")

    def of(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(name, labels)
        assert value is not None, f"no sample {name} {labels}"
        return value


@pytest.fixture
def counted() -> Counted:
    return Counted()


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


def test_two_models_are_told_apart(counted: Counted) -> None:
    other = ModelMetrics(counted.families, "pt-en")
    counted.metrics.finished(FinishReason.LENGTH, TIMINGS, source_tokens=7, target_tokens=9)
    other.finished(FinishReason.LENGTH, TIMINGS, source_tokens=1, target_tokens=2)
    counted.metrics.worker(0).steps(1, rows=8, seconds=0.005, model_seconds=0.004)
    other.worker(0).steps(1, rows=3, seconds=0.005, model_seconds=0.004)
    for model, tokens, rows in (("en-pt", 9, 8), ("pt-en", 2, 3)):
        assert counted.of("dragoman_target_tokens_total", model=model) == tokens
        assert counted.of("dragoman_rows_computed_total", model=model) == rows


def test_what_operators_count_for_the_process_counts_once_for_two_models(counted: Counted) -> None:
    def of_process() -> Counters:
        return Counters(rows=10, whole_rows=1, saturated=2)

    def of_a_screened_graph() -> Counters:
        return Counters(rows=5, whole_rows=2, saturated=0)

    counted.metrics.kernels(of_process)
    ModelMetrics(counted.families, "pt-en").kernels(of_process)
    assert counted.of("dragoman_output_rows_total", kind="screened") == 9
    ModelMetrics(counted.families, "en-de").kernels(of_a_screened_graph)
    assert counted.of("dragoman_output_rows_total", kind="screened") == 12
    assert counted.of("dragoman_output_rows_total", kind="whole") == 3
    assert counted.of("dragoman_saturated_values_total") == 2


def test_an_encoding_has_no_decode_phase(counted: Counted) -> None:
    counted.metrics.encoded(TIMINGS, source_tokens=7)
    counts = {
        phase: counted.of("dragoman_phase_duration_seconds_count", model="en-pt", phase=phase) for phase in PHASES
    }
    assert counts == {"queue": 1, "tokenize": 0, "encode": 1, "decode": 0, "detokenize": 0}
    assert counted["dragoman_source_tokens_total"] == 7


def test_an_rpc_is_in_flight_until_its_answer_is_sent(counted: Counted) -> None:
    counted.calls.rpc_started("s/Translate")
    assert counted.of("dragoman_rpc_in_flight", method="s/Translate") == 1
    counted.calls.rpc_finished("s/Translate", "UNAVAILABLE", 0.3)
    counted.calls.rpc_ended("s/Translate")
    assert counted.of("dragoman_rpc_in_flight", method="s/Translate") == 0
    assert counted.of("dragoman_rpc_requests_total", method="s/Translate", code="UNAVAILABLE") == 1
    labels = {"method": "s/Translate", "code": "UNAVAILABLE"}
    assert counted.of("dragoman_rpc_duration_seconds_sum", **labels) == pytest.approx(0.3)


def test_what_fails_by_the_servers_fault_counts_from_zero(counted: Counted) -> None:
    """Or the first burst of it would have no rate."""
    assert counted.of("dragoman_refusals_total", reason="OVERLOADED") == 0
    assert {"OVERLOADED", "INTERNAL", "QUARANTINED", "WOULD_BE_LATE"} < set(fault_reasons())
    assert not {"BLANK_CONTENT", "QUOTA_EXCEEDED", "NO_CREDENTIALS"} & set(fault_reasons())
    counted.calls.rpc_started("s/Translate")
    for code in FAULTS:
        assert counted.of("dragoman_rpc_requests_total", method="s/Translate", code=code) == 0


def test_gauges_and_the_other_counters(counted: Counted) -> None:
    counted.metrics.waiting(3)
    counted.metrics.cancelled()
    counted.metrics.flagged(GuardFlag.COPY)
    counted.calls.refused("OVERLOADED")
    assert counted["dragoman_requests_waiting"] == 3
    assert counted["dragoman_cancellations_total"] == 1
    assert counted.of("dragoman_guard_flags_total", model="en-pt", flag="copy") == 1
    assert counted.of("dragoman_guard_flags_total", model="en-pt", flag="repetition") == 0
    assert counted.of("dragoman_refusals_total", reason="OVERLOADED") == 1


# Of all families


def families(registry: CollectorRegistry) -> list[Metric]:
    found = list(text_string_to_metric_families(generate_latest(registry).decode()))
    return [family for family in found if family.name.startswith("dragoman_")]


def test_names_follow_prometheus_and_labels_are_bounded() -> None:
    everything(registry := CollectorRegistry())
    ours = families(registry)
    assert len(ours) == 67
    assert not [family.name for family in ours if family.name.endswith("_created")]
    for family in ours:
        assert re.fullmatch(r"dragoman_[a-z]+(_[a-z]+)*", family.name)
        assert not re.search(r"_(ms|us|milliseconds|minutes|kb|mb)\b", family.name)
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.name.endswith("_info") or set(sample.labels) <= LABELS, sample


@pytest.mark.parametrize(
    "buckets", [LATENCY_SECONDS, PHASE_SECONDS, step_metrics.TOKEN_SECONDS, step_metrics.STEP_ROWS]
)
def test_buckets_rise(buckets: list[float]) -> None:
    assert list(buckets) == sorted(set(buckets))


def test_buckets_reach_from_refusals_to_documents_and_to_as_many_rows_as_there_may_be() -> None:
    assert LATENCY_SECONDS[0] == 0.0005
    assert LATENCY_SECONDS[-1] == 300
    assert step_metrics.TOKEN_SECONDS[0] == 0.0001
    most = int(step_metrics.STEP_ROWS[-1])
    assert Settings(max_rows=most).max_rows == most
    with pytest.raises(ValidationError):
        Settings(max_rows=most + 1)


def exemplars(registry: CollectorRegistry) -> Iterator[tuple[str, dict[str, str]]]:
    """Name of the family and labels of every exemplar."""
    for family in parse_openmetrics(generate_openmetrics(registry).decode()):
        for sample in family.samples:
            if sample.exemplar is not None:
                yield family.name, sample.exemplar.labels


def test_timings_have_the_trace_as_their_exemplar() -> None:
    everything(registry := CollectorRegistry())
    found = list(exemplars(registry))
    assert all(labels == {"trace_id": TRACE} for _, labels in found)
    counts = {name: [family for family, _ in found].count(name) for name, _ in found}
    assert counts == {
        "dragoman_rpc_duration_seconds": 1,
        "dragoman_phase_duration_seconds": len(PHASES),
        "dragoman_time_to_first_token_seconds": 1,
    }


def test_without_a_trace_there_is_no_exemplar(counted: Counted) -> None:
    counted.calls.rpc_started("m")
    counted.calls.rpc_finished("m", "OK", 0.1)
    counted.metrics.tokenized(0.1)
    assert list(exemplars(counted.registry)) == []
