"""The dashboards of deploy/grafana, as files. tests/watch/test_truth.py asks a Prometheus for what they show."""

import re
from collections import Counter
from itertools import pairwise

import pytest
import yaml

from deploy.grafana.__main__ import FOLDER, render
from tests.server_process import ROOT
from tests.watch.dashboards import DASHBOARDS, Panel, panels, recorded_names
from tests.watch.promql import misuses, selectors

PANELS = panels()
GRAFANA = ROOT / "deploy" / "grafana"
COLUMNS = 24

every_panel = pytest.mark.parametrize("panel", PANELS, ids=str)


def test_the_files_are_what_the_code_makes() -> None:
    written = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.json")}
    assert written == render(), "run make dashboards"


def test_there_are_the_dashboards_and_each_has_its_own_address() -> None:
    assert set(DASHBOARDS) == {"overview", "latency", "batching", "faults", "resources", "models"}
    assert {dashboard["uid"] for dashboard in DASHBOARDS.values()} == {f"dragoman-{name}" for name in DASHBOARDS}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_can_be_narrowed_to_models_and_instances_and_marks_starts(name: str) -> None:
    dashboard = DASHBOARDS[name]
    choices = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert list(choices) == ["datasource", "model", "replica", "instance"]
    for choice in ("model", "replica", "instance"):
        assert choices[choice]["multi"] and choices[choice]["includeAll"] and choices[choice]["allValue"] == ".*"
    marks = {mark["name"]: mark for mark in dashboard["annotations"]["list"]}
    assert list(marks) == ["Start", "Model loaded"]
    assert all(mark["useValueForTime"] and mark["enable"] for mark in marks.values())


@every_panel
def test_a_panel_says_what_it_shows(panel: Panel) -> None:
    defaults = panel.json["fieldConfig"]["defaults"]
    assert panel.title
    assert panel.json["description"].endswith(".")
    assert defaults["unit"]
    assert defaults["noValue"]
    assert defaults["thresholds"]["steps"][0]["value"] is None
    assert panel.json["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel.targets
    assert all(target["legendFormat"] for target in panel.targets)
    assert len({target["refId"] for target in panel.targets} - {""}) == len(panel.targets)


def test_titles_are_told_apart() -> None:
    assert [name for name, times in Counter(map(str, PANELS)).items() if times > 1] == []


@every_panel
def test_a_panel_asks_for_metrics_that_exist_and_for_rates_of_what_grows(panel: Panel) -> None:
    for expression in panel.expressions:
        assert misuses(expression, recorded_names()) == []


@every_panel
def test_windows_are_grafanas_and_every_series_can_be_narrowed(panel: Panel) -> None:
    """But for what rules record: it is of whole jobs."""
    for expression in panel.expressions:
        for selector in selectors(expression):
            assert selector.window in ("", "$__rate_interval")
            assert {"instance", "replica"} <= {*selector.labels} or selector.name in recorded_names()


@every_panel
def test_quantiles_are_of_summed_buckets_and_nothing_is_averaged(panel: Panel) -> None:
    for expression in panel.expressions:
        assert not re.search(r"\b(avg|avg_over_time|quantile|stddev)\b", expression)
        quantiles = re.findall(r"histogram_quantile\([\d.]+, (.{12})", expression)
        assert [start for start in quantiles if start != "sum by (le, " and not start.startswith("sum by (le)")] == []
        assert len(quantiles) == expression.count("histogram_quantile")


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_fill_their_rows_and_do_not_overlap(name: str) -> None:
    lines: dict[int, list[dict[str, int]]] = {}
    for panel in DASHBOARDS[name]["panels"]:
        lines.setdefault(panel["gridPos"]["y"], []).append(panel["gridPos"])
    for y, places in lines.items():
        assert all(left["x"] + left["w"] == right["x"] for left, right in pairwise(places)), y
        assert places[-1]["x"] + places[-1]["w"] == COLUMNS, y
        assert len({place["h"] for place in places}) == 1, y
    assert all(above + lines[above][0]["h"] == below for above, below in pairwise(sorted(lines)))


def test_grafana_is_told_where_they_are() -> None:
    [source] = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    [provider] = yaml.safe_load((GRAFANA / "provisioning/dashboards/dragoman.yml").read_text())["providers"]
    prometheus = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    volumes = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]["volumes"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in volumes


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("sum(dragoman_steps_total)", "a rate of what grows"),
        ("rate(dragoman_rows_live[1m])", "a rate of what grows"),
        ('rate(dragoman_steps_total{method="x"}[1m])', "no label"),
        ("rate(nv_inference_load_ratio[1m]) + dragoman_requests_wating", "no metric dragoman_requests_wating"),
    ],
)
def test_the_tests_see_the_usual_mistakes(expression: str, wrong: str) -> None:
    [told] = misuses(expression)
    assert wrong in told
