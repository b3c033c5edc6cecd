"""Do dashboards and alerts tell the truth? A real server, a real Prometheus, and traffic that its client counts.

Every expression of every panel is evaluated as it stands. `$__rate_interval` becomes the time from a scrape before the
traffic to one after it: then nothing is extrapolated, and a rate times that time is a count.
"""

import math
import re
import shutil
import ssl
import time
import urllib.request
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import grpc
import pytest
import trustme

from bench.process import free_port
from models.package.folder import Package
from server.telemetry.metrics.call import LATENCY_SECONDS
from tests.server_process import ROOT, WAIT_S, ServerProcess, eventually, server_process
from tests.watch.dashboards import DASHBOARDS, Panel, alerts, panels, rules
from tests.watch.promql import selectors
from tests.watch.traffic import MAX_ROWS, MAX_WAITING, PHASES, Call, Seen, Traffic
from tests.watch.watching import Alertmanager, Prometheus, Webhook, alertmanager, prometheus, webhook

MISSING = [tool for tool in ("prometheus", "prometheus-alertmanager") if not shutil.which(tool)]
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=f"not found: {MISSING}; on Debian: apt-get install {' '.join(MISSING)}"),
]

MODEL = "en-pt"
OTHER = ROOT / "models" / "zoo" / "pt-en"
"""A second model, which nobody asks."""
CALLS = 20
"""Of each kind."""


@dataclass
class Watched:
    """A server that has been watched while a client counted."""

    server: ServerProcess
    prometheus: Prometheus
    hook: Webhook
    alertmanager: Alertmanager
    seen: Seen
    start: str
    end: str
    """Times of a scrape before the traffic and of one after it and after all the rules."""

    @property
    def seconds(self) -> float:
        return round(float(self.end) - float(self.start), 3)

    def ask(self, expression: str, model: str = MODEL) -> Mapping[tuple[tuple[str, str], ...], float]:
        """The value of a panel's expression after the traffic, over all of it. `model`: the choice at the top."""
        instance = re.escape(f"127.0.0.1:{self.server.metrics_port}").replace("\\", "\\\\")
        values = {
            "__rate_interval": f"{self.seconds * 1000:.0f}ms",
            "instance": instance,
            "replica": ".*",
            "model": model,
        }
        for name, value in values.items():
            expression = expression.replace(f"${name}", value)
        return self.prometheus.query(expression, self.end)

    def show(self, title: str) -> dict[str, float]:
        """Legend -> value of the panel with this name."""
        [panel] = [panel for panel in panels() if str(panel) == title]
        return {
            legend(target["legendFormat"], dict(labels)): value
            for target in panel.targets
            for labels, value in self.ask(target["expr"]).items()
        }

    def count(self, title: str) -> dict[str, float]:
        """The same for what happened in the time, where the panel shows it by the second."""
        return {legend: value * self.seconds for legend, value in self.show(title).items()}


def legend(template: str, labels: Mapping[str, str]) -> str:
    """The name of a series in a panel."""
    return re.sub(r"{{(\w+)}}", lambda label: labels[label[1]], template)


@pytest.fixture(scope="module")
def watched(zoo_package: Package, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    files = folder / "certificate.pem", folder / "key.pem"
    certificate.cert_chain_pems[0].write_to_path(files[0])
    certificate.private_key_pem.write_to_path(files[1])
    pem = authority.cert_pem.bytes().decode()
    limits = ("--max-rows", MAX_ROWS, "--max-waiting", MAX_WAITING, "--max-contents", MAX_WAITING)
    http_port = free_port()
    faces = "--http-port", http_port, "--tls-certificate", files[0], "--tls-key", files[1]
    post = partial(posted, f"https://127.0.0.1:{http_port}", ssl.create_default_context(cadata=pem))
    with (
        server_process(zoo_package.folder, "--package", OTHER, *faces, *limits) as server,
        webhook() as hook,
        alertmanager(folder, hook) as manager,
        prometheus(folder, f"127.0.0.1:{server.metrics_port}", manager) as watcher,
        grpc.secure_channel(server.target, grpc.ssl_channel_credentials(pem.encode())) as channel,
    ):
        Traffic(channel, server, post).drive(1)  # now every series is there
        start = scrape_after(watcher, time.time())
        seen = Traffic(channel, server, post).drive(CALLS)
        end = scrape_after(watcher, evaluation_after(watcher, float(scrape_after(watcher, time.time()))))
        yield Watched(server, watcher, hook, manager, seen, start, end)


def posted(server: str, tls: ssl.SSLContext, path: str, message: bytes) -> bytes:
    """The answer to a message of Protobuf."""
    asked = urllib.request.Request(server + path, message, {"content-type": "application/proto"})
    with urllib.request.urlopen(asked, timeout=WAIT_S, context=tls) as answer:
        return bytes(answer.read())


def scrape_after(watcher: Prometheus, moment: float) -> str:
    """The time of the first scrape after a moment."""
    eventually(lambda: bool(watcher.scrapes(moment)))
    return watcher.scrapes(moment)[0]


def evaluation_after(watcher: Prometheus, moment: float) -> float:
    """When every rule has been evaluated over what was scraped until a moment, and over what rules before it say."""
    eventually(lambda: watcher.evaluated() > moment)
    once = time.time()
    eventually(lambda: watcher.evaluated() > once)
    return time.time()


# Everything answers


@pytest.mark.parametrize("panel", panels(), ids=str)
def test_no_panel_fails_or_is_empty(panel: Panel, watched: Watched) -> None:
    for expression in panel.expressions:
        values = watched.ask(expression)
        assert values, expression
        assert all(map(math.isfinite, values.values())), expression


LINES = [panel for panel in panels() if panel.json["type"] == "timeseries"]


@pytest.mark.parametrize("panel", LINES, ids=str)
def test_lines_have_names_of_their_own_with_every_model_chosen(panel: Panel, watched: Watched) -> None:
    names = [
        legend(target["legendFormat"], dict(labels))
        for target in panel.targets
        for labels in watched.ask(target["expr"], model=".*")
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_choices_and_marks_answer(name: str, watched: Watched) -> None:
    """A server without Ray is no replica."""
    labels = {"model": {MODEL, OTHER.name}, "instance": {f"127.0.0.1:{watched.server.metrics_port}"}, "replica": {None}}
    for choice in DASHBOARDS[name]["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", choice["query"]["query"]).groups()  # type: ignore[union-attr]
        assert {dict(series).get(label) for series in watched.ask(metric)} == labels[label]
    marks = {mark["name"]: mark["expr"] for mark in DASHBOARDS[name]["annotations"]["list"]}
    [started], [loaded] = (watched.ask(marks[mark]).values() for mark in ("Start", "Model loaded"))
    assert 0 < loaded - started < 1000 * (float(watched.start) - started / 1000)


def test_no_rule_fails_and_all_that_is_recorded_is_there(watched: Watched) -> None:
    groups = watched.prometheus.get("rules")["groups"]
    evaluated = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(evaluated) == {rule.get("alert") or rule["record"] for rule in rules()}
    assert [name for name, rule in evaluated.items() if rule["health"] != "ok"] == []
    assert [name for name, rule in evaluated.items() if rule["type"] == "recording" and not watched.ask(name)] == []


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_watches_series_that_are_there(alert: str, watched: Watched) -> None:
    """With all the labels that it asks for: an alert on a label that does not exist would never fire."""
    for selector in selectors(alerts()[alert]["expr"]):
        present = watched.ask(selector.name)
        assert present, selector
        assert all(set(selector.labels) <= {label for label, _ in labels} for labels in present), selector


# And tells what the client saw


def whole(values: Mapping[str, float]) -> dict[str, float]:
    """Counts of what has happened at all, but for the error of floating point."""
    return {name: round(value, 3) for name, value in values.items() if value}


def test_calls_by_method_by_code_and_by_face(watched: Watched) -> None:
    methods, codes = Counter[str](), Counter[str]()
    for (method, code), calls in watched.seen.codes.items():
        methods[method] += calls
        codes[code] += calls
    assert whole(watched.count("overview/Traffic and errors/Calls by method")) == methods
    assert whole(watched.count("overview/Traffic and errors/Calls by code")) == codes
    by_face = whole(watched.count("overview/Traffic and errors/Calls by face"))
    assert by_face == {"gRPC": watched.seen.calls - 2 * CALLS, "HTTP": CALLS, "KServe": CALLS}
    assert codes["OK"] == 5 * CALLS
    assert watched.count("overview/Now/Calls")["Calls"] == pytest.approx(watched.seen.calls)


def test_failures_are_the_servers_fault_alone(watched: Watched) -> None:
    seen = watched.seen
    translate = sum(calls for (method, _), calls in seen.codes.items() if method == "Translate")
    failed = watched.show("overview/Traffic and errors/Failed calls by method")
    assert failed == pytest.approx(
        {**dict.fromkeys(("StreamTranslate", "Encode", "ModelMetadata"), 0), "Translate": CALLS / translate}
    )
    by_face = watched.show("overview/Each API/Failed calls by face")
    assert by_face == pytest.approx({"gRPC": CALLS / (seen.calls - 2 * CALLS), "HTTP": 0, "KServe": 0})
    assert watched.show("overview/Now/Failed calls")["Failed calls"] == pytest.approx(CALLS / seen.calls)


@pytest.mark.parametrize("title", ["overview/Traffic and errors/Refusals", "batching/Contents/Refusals"])
def test_refusals(title: str, watched: Watched) -> None:
    assert watched.seen.reasons == {"BLANK_CONTENT": CALLS, "OVERLOADED": CALLS}
    assert whole(watched.count(title)) == watched.seen.reasons


def test_tokens(watched: Watched) -> None:
    tokens = {"source": watched.seen.source_tokens, "target": watched.seen.target_tokens}
    assert whole(watched.count("batching/Contents/Tokens")) == tokens
    assert watched.count("overview/Now/Target tokens")["Target tokens"] == pytest.approx(tokens["target"])
    [by_version] = watched.count("models/Traffic/Target tokens").values()
    assert by_version == pytest.approx(tokens["target"])


def test_contents_and_how_they_ended(watched: Watched) -> None:
    ends = whole(watched.count("batching/Contents/Ends"))
    assert ends.pop("cancelled") == watched.seen.cancelled == 10
    assert ends == {"end_token": len(watched.seen.translations)}
    [contents] = watched.count("models/Traffic/Contents").values()
    assert contents == pytest.approx(watched.seen.contents)


def test_useful_and_wasted_tokens_are_all_that_was_computed(watched: Watched) -> None:
    computed = watched.count("batching/Waste/Computed tokens")
    assert computed.pop("failed") == 0
    assert set(computed) == {"useful", "hypotheses", "cancelled"}
    assert computed["useful"] == pytest.approx(watched.seen.target_tokens)
    assert min(computed.values()) > 0
    [rows] = watched.ask(
        'increase(dragoman_rows_computed_total{instance=~"$instance", model=~"$model"}[$__rate_interval])'
    ).values()
    assert sum(computed.values()) == pytest.approx(rows)
    assert watched.show("batching/Waste/Useful share")["useful"] == pytest.approx(computed["useful"] / rows)


def test_phases_are_what_the_replies_say(watched: Watched) -> None:
    told = {phase: watched.seen.phases[phase] / watched.seen.contents for phase in PHASES}
    shown = watched.show("latency/Where the time goes/Phases of a content")
    assert shown.pop("tokenize") > told.pop("tokenize")  # which refused contents go through, too
    assert shown == pytest.approx(told, rel=1e-4)


def test_heat_maps_count_every_observation(watched: Watched) -> None:
    calls, contents = (
        {dict(labels)["le"]: count for labels, count in watched.ask(expression).items()}
        for panel in panels()
        if str(panel) in ("latency/Calls/Answered calls", "latency/Queue/Queue")
        for expression in panel.expressions
    )
    assert calls["+Inf"] == pytest.approx(5 * CALLS)
    assert contents["+Inf"] == pytest.approx(watched.seen.contents)


# Percentiles


def bounds(calls: list[Call], q: float) -> tuple[float, float]:
    """Between them lies the quantile that a histogram tells of these calls.

    A call is longer than its slowest content, as the server tells it, and shorter than its client measures. The
    quantile lies in the bucket of the value at its rank: between the edges of the buckets that these two are in.
    """
    rank = math.ceil(q * len(calls)) - 1
    least = sorted(call.engine_seconds for call in calls)[rank]
    most = sorted(call.seconds for call in calls)[rank]
    edges = [0.0, *LATENCY_SECONDS]
    low, high = edges[max(0, bisect_left(edges, least) - 1)], edges[bisect_left(edges, most)]
    return low, high * (1 + 1e-9)  # where all are in one bucket, it is at its edge


@pytest.mark.parametrize("method", ["Translate", "StreamTranslate", "Encode"])
@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_percentiles_are_those_of_the_client_but_for_the_width_of_a_bucket(
    method: str, q: float, watched: Watched
) -> None:
    low, high = bounds([call for call in watched.seen.answered if call.method == method], q)
    assert low <= watched.show(f"overview/Latency of answered calls/p{q * 100:g} by method")[method] <= high
    if method == "Translate" and q == 0.99:
        assert low <= watched.show("overview/Now/Translate, p99")["Translate, p99"] <= high


@pytest.mark.parametrize("q", [0.5, 0.99])
def test_percentiles_of_each_api(q: float, watched: Watched) -> None:
    shown = watched.show(f"overview/Each API/p{q * 100:g} by face")
    assert shown.keys() == {"gRPC", "HTTP", "KServe"}
    for face, value in shown.items():
        low, high = bounds([call for call in watched.seen.answered if call.face == face], q)
        assert low <= value <= high


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_percentiles_of_all_calls(q: float, watched: Watched) -> None:
    low, high = bounds(watched.seen.answered, q)
    assert low <= watched.show("latency/Calls/Answered calls: quantiles")[f"p{q * 100:g}"] <= high


# Alerts arrive


def test_an_alert_that_fires_reaches_the_receiver_of_pages(watched: Watched) -> None:
    """One call in six was refused: the budget of failed calls burns fast."""
    rule = alerts()["DragomanErrorsBurnFast"]
    labels = {"alertname": "DragomanErrorsBurnFast", "job": "dragoman", **rule["labels"]}
    eventually(lambda: any(alert["labels"] == labels for alert in watched.hook.delivered.get("/page", [])))
    told = next(alert for alert in watched.hook.delivered["/page"] if alert["labels"] == labels)
    assert told["status"] == "firing"
    assert re.fullmatch(r"[\d.]+% of the calls to dragoman fail", told["annotations"]["summary"])
    assert told["annotations"]["runbook_url"] == rule["annotations"]["runbook_url"]


def test_a_fast_alert_inhibits_the_slow_one(watched: Watched) -> None:
    eventually(lambda: "DragomanErrorsBurnSlow" in watched.alertmanager.inhibited())
    assert "DragomanErrorsBurnFast" not in watched.alertmanager.inhibited()
