"""The Helm chart: rendered by Helm itself, and every object checked by the schema of its kind."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from server.config import Settings
from server.telemetry.metrics.model import ModelFamilies

helm = pytest.importorskip("helm_python", reason="`make tools` has not been run")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="`make tools` has not been run")

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "dragoman"
VARIANTS = [None, *sorted((CHART / "ci").glob("*-values.yaml"))]
KUBERNETES = ["1.30", "1.33", "1.36"]
"""The oldest that the chart takes, and newer ones."""
CUSTOM = {"ScaledObject", "ServiceMonitor"}
SCHEMAS = ROOT / ".venv" / "chart"
"""Where `make tools` puts what knows the custom kinds."""
THE_CHARTS_OWN = {
    "config",
    "package",
    "require_signed",
    "host",
    "port",
    "metrics_port",
    "http",
    "http_port",
    "open",
    "reuse_port",
    "grace_period_s",
    "callers",
}
NO_VALUES = {"default", "description", "title"}
LISTS = {"type": ["string", "array"], "minLength": 1, "minItems": 1}
PLAINTEXT_PROBES = {"tls_certificate", "tls_key", "tls_client_ca"}

Objects = Mapping[str, dict[str, Any]]


def render(values: Mapping[str, Any] | None = None, name: str = "demo") -> Objects:
    """What Helm makes of the chart, by kind; a headless Service by the kind HeadlessService."""
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(dict(values or {}), name=name, namespace="prod")
    documents = [d for name, text in files.items() if name.endswith(".yaml") for d in yaml.safe_load_all(text) if d]
    return {"Headless" * (d.get("spec", {}).get("clusterIP") == "None") + d["kind"]: d for d in documents}


def variants() -> Iterator[Objects]:
    for file in VARIANTS:
        yield render(yaml.safe_load(file.read_text(encoding="utf-8")) if file else None)


def pod(objects: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return spec


def container(objects: Objects) -> dict[str, Any]:
    only: list[dict[str, Any]] = pod(objects)["containers"]
    assert len(only) == 1
    return only[0]


def environment(objects: Objects) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container(objects)["env"]}


def test_helm_has_nothing_to_say_about_it() -> None:
    findings = helm.lint(str(CHART))
    assert findings["errors"] == findings["messages"] == []


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_what_kubernetes_takes(version: str) -> None:
    kinds = set()
    for objects in variants():
        for kind, thing in objects.items():
            if kind not in CUSTOM:
                kubernetes_validate.validate(thing, version, strict=True)
                kinds.add(kind)
    assert {"Deployment", "HeadlessService", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget"} <= kinds


def test_kubernetes_would_refuse_a_slip() -> None:
    deployment = render()["Deployment"]
    deployment["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 40
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES[0], strict=True)


@pytest.mark.skipif(not SCHEMAS.exists() or not shutil.which("node"), reason="`make tools` has not been run")
def test_every_custom_object_is_what_its_operator_takes() -> None:
    things = [thing for objects in variants() for kind, thing in objects.items() if kind in CUSTOM]
    assert {thing["kind"] for thing in things} == CUSTOM
    assert validate_custom(things) == 0
    for thing in things:
        thing["spec"].pop("triggers", None)
    assert validate_custom(things) != 0


def validate_custom(things: list[dict[str, Any]]) -> int:
    """The exit code of the schemas' own program."""
    shutil.copy(ROOT / "deploy" / "helm" / "crds.mjs", SCHEMAS)
    command = ["node", str(SCHEMAS / "crds.mjs")]
    return subprocess.run(command, input=json.dumps(things), text=True, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 3},
        {"settings": {"max_row": 32}},
        {"settings": {"tls_key": "/tls/key.pem"}},
        {"settings": {"max_rows": [32]}},
        {"settings": {"max_rows": 0}},
        {"settings": {"workers": "four"}},
        {"settings": {"log_level": "loud"}},
        {"settings": {"http_hosts": []}},
        {"settings": {"http_hosts": "a.example,,b.example"}, "http": {"enabled": True}},
        {"settings": {"http_cors": "https://a.example, b.example"}, "http": {"enabled": True}},
        {"settings": {"caller_key": "authorization"}},
        {"settings": {"caller_key": "x-tenant-bin"}},
        {"autoscaling": {"queueSeconds": 0.0004}},
        {"environment": {"DRAGOMAN_PORT": "9000"}},
        {"autoscaling": {"type": "vpa"}},
        {"image": {"digest": "latest"}},
        {"shutdown": {"gracePeriodSeconds": -1}},
    ],
    ids=str,
)
def test_values_that_mean_nothing_are_refused(values: Mapping[str, Any]) -> None:
    with pytest.raises(helm.HelmValuesError):
        render(values)


@pytest.mark.parametrize("path", ["http", "settings", "image.repository", "shutdown.flushSeconds", "autoscaling.hpa"])
def test_what_is_needed_and_taken_out_by_null_is_named(path: str) -> None:
    within, _, name = path.rpartition(".")
    with pytest.raises(helm.HelmValuesError, match=f"missing property '{name}'"):
        render({within: {name: None}} if within else {name: None})


def test_the_schema_knows_every_setting_that_is_not_the_charts_own() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    settings = schema["properties"]["settings"]["properties"]
    assert set(settings) == set(Settings.model_fields) - THE_CHARTS_OWN - PLAINTEXT_PROBES
    of_server = Settings.model_json_schema()["properties"]
    assert settings == {name: values_of(of_server[name]) for name in settings}


def values_of(setting: dict[str, Any]) -> dict[str, Any]:
    """What the chart takes for a setting. A list may be written as one text, too."""
    known = {key: value for key, value in setting.get("anyOf", [setting])[0].items() if key not in NO_VALUES}
    if known.get("type") != "array":
        return known
    one = known["items"]["pattern"][1:-1]
    return known | LISTS | {"pattern": rf"^\s*{one}\s*(,\s*{one}\s*)*$"}


@pytest.mark.parametrize("kind", ["hpa", "keda"])
def test_no_autoscaler_has_more_replicas_at_least_than_at_most(kind: str) -> None:
    told = r"autoscaling\.minReplicas is 11 and autoscaling\.maxReplicas 10: raise maxReplicas"
    with pytest.raises(helm.HelmRenderError, match=told):
        render({"autoscaling": {"type": kind, "minReplicas": 11}})
    assert render({"autoscaling": {"minReplicas": 11}})  # nobody reads it


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"settings": {"http_hosts": ["a.example"]}},
            r"settings\.http_hosts says who .* and http\.enabled is false: say",
        ),
        ({"settings": {"http_cors": "*"}}, r"settings\.http_cors says who .* and http\.enabled is false: say true"),
        (
            {"package": {"subPath": "en-pt"}},
            r"package\.subPath is en-pt, and package\.existingClaim, .* is empty: name",
        ),
        (
            {"autoscaling": {"type": "keda"}},
            r"autoscaling\.type is keda, .* and serviceMonitor\.enabled is false: say true, or give a query",
        ),
    ],
    ids=str,
)
def test_values_that_lack_another_are_refused(values: Mapping[str, Any], told: str) -> None:
    """The server would refuse the first two at its start, and the others would do nothing."""
    with pytest.raises(helm.HelmRenderError, match=told):
        render(values)


def verdict(settings: Mapping[str, Any]) -> str:
    """Why the server of the image for CUDA, whose device is that, does not take them. Empty: it does."""
    try:
        Settings(**{"device": "cuda", **settings})
    except ValidationError as error:
        return str(error.errors()[0]["ctx"]["error"])
    return ""


@pytest.mark.parametrize(
    "settings",
    [
        {"device": "cpu", "device_id": 1},
        {"device": "cpu", "device_memory_fraction": 0.5},
        {"max_contents": 2000},
        {"max_waiting": 100},
        {"jwt_keys": "https://issuer.example/keys"},
        {"jwt_issuer": "https://issuer.example", "jwt_audience": "translate"},
        {"canary_health": True, "canary_interval_s": 0},
        {"log_text": True},
        {"log_labels": True},
        {"trace_sample_ratio": 0},
        {"log_requests": True, "log_level": "warning"},
    ],
    ids=str,
)
def test_settings_that_contradict_each_other_are_refused_in_the_servers_words(settings: Mapping[str, Any]) -> None:
    told = verdict(settings)
    assert told
    with pytest.raises(helm.HelmRenderError, match=re.escape(f"settings: {told}")):
        render({"settings": settings})


def test_the_chart_takes_every_setting_alone_that_the_server_takes_alone() -> None:
    known = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]["settings"]
    for name, setting in known["properties"].items():
        for value in some_values(setting):
            settings = {name: value}
            if not verdict(settings):
                assert f"DRAGOMAN_{name.upper()}" in environment(
                    render({"settings": settings, "http": {"enabled": True}})
                )
            else:
                with pytest.raises(helm.HelmRenderError, match=f"settings: .*{name}"):
                    render({"settings": settings})


def some_values(setting: Mapping[str, Any]) -> list[Any]:
    """Of those that its schema has: all, or its ends."""
    if "enum" in setting:
        return list(setting["enum"])
    if setting["type"] == "boolean":
        return [True, False]
    if setting["type"] in ("integer", "number"):
        return [setting.get("minimum", 1), setting.get("maximum", 10**6)]
    return ["http://a.example" if "http" in setting.get("pattern", "") else "null"]


@pytest.mark.parametrize(
    "settings",
    [
        {"device": "auto", "device_id": 1, "device_memory_fraction": 0.5},
        {"max_contents": 2000, "max_waiting": 2000},
        {"jwt_keys": "https://issuer.example/keys", "jwt_issuer": "issuer", "jwt_audience": "translate"},
        {"canary_health": True},
        {"log_requests": True, "log_labels": True, "log_text": True, "log_level": "debug"},
        {"otlp_endpoint": "http://a.example:4317", "log_labels": True, "trace_sample_ratio": 0},
    ],
    ids=str,
)
def test_settings_that_fit_each_other_are_taken(settings: Mapping[str, Any]) -> None:
    assert not verdict(settings)
    assert set(settings) <= {
        name.removeprefix("DRAGOMAN_").lower() for name in environment(render({"settings": settings}))
    }


def test_settings_reach_the_server_as_they_are_written() -> None:
    settings = {
        "max_message_bytes": 4194304,
        "log_level": "warning",
        "cuda_graphs": False,
        "shadow_share": 0.5,
    }
    assert environment(render({"settings": settings})) == {
        "DRAGOMAN_GRACE_PERIOD_S": "30",
        "DRAGOMAN_HTTP": "false",
        "DRAGOMAN_MAX_MESSAGE_BYTES": "4194304",
        "DRAGOMAN_LOG_LEVEL": "warning",
        "DRAGOMAN_CUDA_GRAPHS": "false",
        "DRAGOMAN_SHADOW_SHARE": "0.5",
    }


@pytest.mark.parametrize("written", [["a.example", "b.example"], "a.example, b.example"], ids=str)
def test_a_list_reaches_the_server_as_a_list(written: str | list[str]) -> None:
    hosts = ["a.example", "b.example"]
    values = {"settings": {"http_hosts": written}, "http": {"enabled": True}}
    told = environment(render(values))["DRAGOMAN_HTTP_HOSTS"]
    assert list(Settings(http_hosts=told).http_hosts) == hosts  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["demo", "dragoman", "a" * 44 + "-" + "b" * 8, "dragoman-" + "a" * 44])
def test_no_name_is_longer_than_kubernetes_takes(name: str) -> None:
    objects = render(name=name)
    names = {thing["metadata"]["name"] for thing in objects.values()}
    assert all(re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", one) for one in names), names
    assert pod(objects)["serviceAccountName"] in names


def test_http_is_reached_where_it_is_asked_for() -> None:
    assert "8580" not in json.dumps(render())
    objects = render({"http": {"enabled": True}})
    assert environment(objects)["DRAGOMAN_HTTP"] == "true"
    assert {"name": "http", "containerPort": 8580} in container(objects)["ports"]
    for kind in ("Service", "HeadlessService"):
        assert 8580 in [port["port"] for port in objects[kind]["spec"]["ports"]]
    assert {"port": 8580} in objects["NetworkPolicy"]["spec"]["ingress"][0]["ports"]


def test_a_pod_may_drain_before_it_is_killed() -> None:
    objects = render({"shutdown": {"sleepSeconds": 7, "gracePeriodSeconds": 60}})
    sleep = container(objects)["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = int(environment(objects)["DRAGOMAN_GRACE_PERIOD_S"])
    assert (sleep, grace) == (7, 60)
    assert pod(objects)["terminationGracePeriodSeconds"] > sleep + grace


def test_pods_keep_to_the_restricted_standard() -> None:
    for objects in variants():
        spec, only = pod(objects), container(objects)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= only["resources"]["limits"].keys()


def test_selectors_find_the_pods() -> None:
    for objects in variants():
        labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
        for kind in ("Service", "HeadlessService"):
            assert objects[kind]["spec"]["selector"].items() <= labels.items()
        for kind in ("Deployment", "PodDisruptionBudget"):
            assert objects[kind]["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
        if monitor := objects.get("ServiceMonitor"):
            service = objects["HeadlessService"]
            assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
            assert monitor["spec"]["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]


def test_an_autoscaler_has_the_replicas_to_itself() -> None:
    assert render()["Deployment"]["spec"]["replicas"] == 2
    for kind, scaler in (("hpa", "HorizontalPodAutoscaler"), ("keda", "ScaledObject")):
        objects = render({"autoscaling": {"type": kind}, "serviceMonitor": {"enabled": True}})
        assert "replicas" not in objects["Deployment"]["spec"]
        assert objects[scaler]["spec"]["scaleTargetRef"]["name"] == objects["Deployment"]["metadata"]["name"]


def test_keda_asks_for_series_that_the_server_has() -> None:
    registry = CollectorRegistry()
    ModelFamilies(registry)
    names = {name for family in registry.collect() for name in (f"{family.name}_sum", f"{family.name}_count")}
    objects = render({"autoscaling": {"type": "keda"}, "serviceMonitor": {"enabled": True}})
    query = objects["ScaledObject"]["spec"]["triggers"][0]["metadata"]["query"]
    assert 'namespace="prod",service="demo-dragoman-headless"' in query
    asked = set(re.findall(r"dragoman_\w+", query))
    assert asked and asked <= names


def test_a_query_of_ones_own_needs_no_service_monitor() -> None:
    objects = render({"autoscaling": {"type": "keda", "keda": {"query": "vector(1)"}}})
    assert objects["ScaledObject"]["spec"]["triggers"][0]["metadata"]["query"] == "vector(1)"


def test_a_metrics_adapter_is_asked_for_labels_that_series_have() -> None:
    """It takes a selector's keys for labels of Prometheus, which names with dots and a slash cannot be."""
    objects = render({"autoscaling": {"type": "hpa", "hpa": {"queueMetric": "dragoman_queue_seconds"}}})
    [queue] = [m["external"] for m in objects["HorizontalPodAutoscaler"]["spec"]["metrics"] if m["type"] == "External"]
    headless = objects["HeadlessService"]["metadata"]["name"]
    assert queue["metric"]["selector"]["matchLabels"] == {"service": headless}  # as KEDA's query has it


def test_nobody_is_let_in_where_nobody_is_named() -> None:
    assert "ingress" not in render({"networkPolicy": {"callers": [], "scrapers": []}})["NetworkPolicy"]["spec"]
    rules = render({"networkPolicy": {"scrapers": []}})["NetworkPolicy"]["spec"]["ingress"]
    assert rules == [{"ports": [{"port": 8500}], "from": [{"podSelector": {}}]}]
