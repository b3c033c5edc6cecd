"""The rules, alerts and routes of deploy/, by the tools of Prometheus; and that the runbook knows every alert."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.grafana.queries import FAULTS
from server.telemetry.metrics import call
from server.telemetry.metrics.call import LATENCY_SECONDS
from tests.server_process import ROOT
from tests.watch.dashboards import RULES, alerts, recorded_names, rules
from tests.watch.promql import misuses

PROMETHEUS = RULES.parent
CASES = sorted((PROMETHEUS / "tests").glob("*.yml"))
RUNBOOK = ROOT / "docs" / "runbook.md"
ALERTS = sorted(alerts())

needs_prometheus = pytest.mark.skipif(
    not shutil.which("promtool") or not shutil.which("amtool"),
    reason="promtool and amtool were not found; on Debian: apt-get install prometheus prometheus-alertmanager",
)


def run(*command: str | Path) -> str:
    """What a tool says that ends well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_prometheus
@pytest.mark.parametrize("folder", [PROMETHEUS, ROOT / "deploy" / "ray"], ids=lambda folder: folder.name)
def test_prometheus_reads_the_configuration(folder: Path) -> None:
    told = run("promtool", "check", "config", "--lint=all", "--lint-fatal", folder / "prometheus.yml")
    assert f"{len(list(RULES.glob('*.yml')))} rule files found" in told


@needs_prometheus
def test_alertmanager_reads_the_configuration() -> None:
    run("amtool", "check-config", ROOT / "deploy" / "alertmanager" / "alertmanager.yml")


@needs_prometheus
@pytest.mark.parametrize(
    ("labels", "receiver"), [("severity=page", "page"), ("severity=ticket", "ticket"), ("alertname=Any", "ticket")]
)
def test_pages_and_tickets_go_different_ways(labels: str, receiver: str) -> None:
    config = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
    assert run("amtool", "config", "routes", "test", f"--config.file={config}", labels).strip() == receiver


@needs_prometheus
@pytest.mark.parametrize("cases", CASES, ids=lambda file: file.stem)
def test_alerts_fire_and_stay_silent(cases: Path) -> None:
    run("promtool", "test", "rules", cases)


def outcomes() -> Iterator[tuple[str, bool]]:
    """Alert and whether it fires, for every case."""
    for file in CASES:
        for group in yaml.safe_load(file.read_text())["tests"]:
            for case in group["alert_rule_test"]:
                yield case["alertname"], bool(case["exp_alerts"])


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_case_that_fires_and_one_that_does_not(alert: str) -> None:
    seen = {fires for name, fires in outcomes() if name == alert}
    assert seen == {True, False}


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_says_how_urgent_it_is_and_what_to_do(alert: str) -> None:
    rule = alerts()[alert]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{alert.lower()}"


def runbook() -> dict[str, str]:
    """Heading -> text of every section."""
    _, *sections = re.split(r"^## ", RUNBOOK.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {heading: text for heading, _, text in (section.partition("\n") for section in sections)}


def test_the_runbook_has_a_section_for_each_alert_and_no_other() -> None:
    assert sorted(runbook()) == ALERTS


@pytest.mark.parametrize("alert", ALERTS)
def test_a_section_says_what_it_means_how_to_check_and_what_to_do(alert: str) -> None:
    text = runbook()[alert]
    parts = [re.search(rf"\*\*{part}\*\* (\S.{{20}})", text) for part in ("Means.", "Check.", "Do.")]
    assert all(parts), text


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_rules_ask_for_metrics_that_exist(rule: dict[str, str]) -> None:
    assert misuses(rule["expr"], recorded_names()) == []


def test_dashboards_and_rules_agree_on_what_a_failed_call_is() -> None:
    recorded = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    assert f'code=~"{FAULTS}"' in recorded["job:dragoman_rpc_errors:rate5m"]
    assert set(call.FAULTS) == set(FAULTS.split("|")) - {"UNKNOWN"}  # which gRPC says, and the server never


def test_the_objective_of_latency_is_a_boundary_of_the_buckets() -> None:
    recorded = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    [boundary] = re.findall(r'le="([\d.]+)"', recorded["job:dragoman_rpc_slow:rate5m"])
    assert float(boundary) in LATENCY_SECONDS
