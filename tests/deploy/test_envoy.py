"""Envoy itself, with deploy/envoy/envoy.yaml, before two real servers: what fails behind it costs no call."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from bench.process import free_port
from dragoman import Client
from dragoman.v1.translation_pb2 import TranslateRequest, TranslateResponse
from tests.server_process import ROOT, WAIT_S, ServerProcess, eventually, server_process

ZOO = Path("models/zoo/en-pt-int8")
TRANSLATE = "/dragoman.v1.TranslationService/Translate"
PAGE = "https://page.example"
"""Where pages come from that may ask. As shipped none may."""
CALLS = 200
PROGRAM = Path(sys.executable).with_name("envoy")
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="`make tools` has not been run")


def configuration(port: int, admin_port: int, servers: list[ServerProcess]) -> dict[str, Any]:
    """Ours, on loopback, with the addresses of these servers, which are asked for their health more often."""
    envoy: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "envoy" / "envoy.yaml").read_text(encoding="utf-8"))
    envoy["admin"]["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": admin_port}
    [listener], [cluster] = envoy["static_resources"]["listeners"], envoy["static_resources"]["clusters"]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    [transcoder] = [one for one in manager["http_filters"] if one["name"].endswith("grpc_json_transcoder")]
    transcoder["typed_config"]["proto_descriptor"] = str(ROOT / "deploy" / "envoy" / "dragoman.pb")
    [host] = manager["route_config"]["virtual_hosts"]
    [cors] = host["typed_per_filter_config"].values()
    assert cors["allow_origin_string_match"] == []
    cors["allow_origin_string_match"] = [{"exact": PAGE}]
    addresses = [{"address": "127.0.0.1", "port_value": server.port} for server in servers]
    endpoints = [{"endpoint": {"address": {"socket_address": address}}} for address in addresses]
    cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": endpoints}]
    for check in cluster["health_checks"]:
        check["interval"] = check["no_traffic_interval"] = "0.1s"
    return envoy


@dataclass(frozen=True)
class Front:
    """Envoy, and what is behind it."""

    port: int
    admin_port: int
    servers: list[ServerProcess]

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def healthy(self) -> int:
        """Servers that Envoy sends calls to."""
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/clusters", timeout=WAIT_S) as page,
        ):
            return int(page.read().count(b"::health_flags::healthy"))
        return 0


FAULTS = {
    "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
    "delay": {"fixed_delay": "0.3s", "percentage": {"numerator": 10}},
    "abort": {"grpc_status": grpc.StatusCode.UNAVAILABLE.value[0], "percentage": {"numerator": 5}},
}
"""Of calls, by chance: each kind of its own. They never reach a server, so that Envoy does not try them again."""


@contextmanager
def envoy(file: Path, servers: list[ServerProcess], faults: dict[str, Any] | None = None) -> Iterator[Front]:
    """Before these servers. file: its configuration"""
    found = Front(free_port(), free_port(), servers)
    told = configuration(found.port, found.admin_port, servers)
    if faults is not None:
        manager = told["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        manager["http_filters"].insert(0, {"name": "envoy.filters.http.fault", "typed_config": faults})
    file.write_text(json.dumps(told), encoding="utf-8")
    with ExitStack() as opened:
        command = [PROGRAM, "--config-path", file, "--use-dynamic-base-id", "--concurrency", "1", "-l", "error"]
        process = opened.enter_context(subprocess.Popen(list(map(str, command))))
        opened.callback(process.kill)
        eventually(lambda: found.healthy() == len(servers))
        yield found


def test_no_field_of_it_is_deprecated(tmp_path: Path) -> None:
    file = tmp_path / "envoy.yaml"
    file.write_text(json.dumps(configuration(free_port(), free_port(), [])), encoding="utf-8")
    command = [PROGRAM, "--mode", "validate", "--config-path", file, "-l", "warning"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0
    assert "deprecated" not in done.stderr


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with ExitStack() as opened:
        servers = [opened.enter_context(server_process(ZOO)) for _ in range(2)]
        yield opened.enter_context(envoy(tmp_path_factory.mktemp("envoy") / "envoy.yaml", servers))


def test_json_is_answered_and_so_is_what_is_wrong_with_it(front: Front) -> None:
    def post(body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://{front.target}{TRANSLATE}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        return json.loads(urllib.request.urlopen(request, timeout=WAIT_S).read())

    [translation] = post({"contents": ["A cat."]})["translations"]
    assert translation["hypotheses"][0]["text"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        post({"contents": []})
    assert refused.value.code == 400
    assert "EMPTY_CONTENTS" in refused.value.read().decode()


def from_page(front: Front, method: str, headers: dict[str, str], body: bytes | None = None) -> Any:
    """What a browser asks, and is answered."""
    request = urllib.request.Request(f"http://{front.target}{TRANSLATE}", body, headers, method=method)
    return urllib.request.urlopen(request, timeout=WAIT_S)


def test_pages_of_named_origins_speak_grpc_web(front: Front) -> None:
    """A frame is a byte of flags, four of length, and a message; the last has the trailers (gRPC-Web's protocol)."""
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-grpc-web"}
    allowed = from_page(front, "OPTIONS", preflight | {"origin": PAGE}).headers
    assert allowed["access-control-allow-origin"] == PAGE and "x-grpc-web" in allowed["access-control-allow-headers"]
    refused = from_page(front, "OPTIONS", preflight | {"origin": "https://other.example"}).headers
    assert refused["access-control-allow-origin"] is None

    message = TranslateRequest(contents=["A cat."]).SerializeToString()
    frame = b"\0" + len(message).to_bytes(4, "big") + message
    asked = {"origin": PAGE, "content-type": "application/grpc-web+proto", "x-grpc-web": "1"}
    with from_page(front, "POST", asked, frame) as response:
        flag, length, answer = (data := response.read())[0], int.from_bytes(data[1:5], "big"), data[5:]
        assert response.headers["access-control-allow-origin"] == PAGE
    assert flag == 0 and TranslateResponse.FromString(answer[:length]).translations[0].hypotheses[0].text
    assert answer[length] == 0x80 and b"grpc-status:0" in answer[length:]


def test_calls_that_are_held_up_or_fail_on_the_way_are_made_again(front: Front, tmp_path: Path) -> None:
    with envoy(tmp_path / "envoy.yaml", front.servers, FAULTS) as faulty, Client(faulty.target) as client:
        before = client.translate("A cat.", timeout_s=WAIT_S).text
        with ThreadPoolExecutor(8) as pool:

            def ask(_: int) -> str:
                return client.translate("A cat.", timeout_s=WAIT_S, no_cache=True).text

            assert set(pool.map(ask, range(CALLS))) == {before}
        told = f"http://127.0.0.1:{faulty.admin_port}/stats?filter=fault"
        with urllib.request.urlopen(told, timeout=WAIT_S) as page:
            counts = dict(line.split(": ") for line in page.read().decode().splitlines())
        assert all(int(counts[f"http.calls.fault.{kind}_injected"]) > 0 for kind in ("aborts", "delays"))


def test_a_server_that_is_killed_or_told_to_end_costs_no_call(front: Front) -> None:
    """Calls that it had are made again: by Envoy where it may, else by the client."""
    with Client(front.target) as client, ThreadPoolExecutor(8) as pool:
        before = client.translate("A cat.").text

        def ask(_: int) -> str:
            return client.translate("A cat.", timeout_s=WAIT_S, no_cache=True).text

        first = pool.map(ask, range(CALLS))
        next(iter(first))
        front.servers[0].process.kill()
        assert set(first) == {before}
        eventually(lambda: front.healthy() == 1)
        with server_process(ZOO, "--port", front.servers[0].port) as again:
            eventually(lambda: front.healthy() == 2)
            second = pool.map(ask, range(CALLS))
            next(iter(second))
            assert front.servers[1].end(signal.SIGTERM) == 0
            assert set(second) == {before}
            assert again.metrics()("dragoman_rpc_requests_total", code="OK") > 0
