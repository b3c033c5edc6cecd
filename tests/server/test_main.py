"""`python -m server` as a process, with a package that was exported for it."""

import asyncio
import gc
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from dragoman import AsyncClient, Client, Internal, __version__
from dragoman.v1.translation_pb2 import StreamTranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from engine.devices.session import DeviceError
from models.package.folder import Package
from server.__main__ import main
from server.api.service import SERVICES
from server.config import Settings
from tests.fakes import CopyDecoder
from tests.server_process import ROOT, WAIT_S, server_command, server_process
from tests.serving import SMALL_WINDOW, eventually, serve_here


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a server that is not to come up."""
    return subprocess.run(
        server_command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def refused(*arguments: object) -> str:
    """The one line that a server says before it exits with code 2."""
    done = run("--port", 0, "--metrics-port", 0, "--no-http", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_it_comes_up_translates_is_watched_and_ends_cleanly(tiny_package: Package) -> None:
    with server_process(tiny_package.folder, "--max-rows", 8) as server:
        assert f"serving tiny on {server.target} with 2 workers of 8 rows (CPUExecutionProvider)" in server.told
        with Client(server.target) as client:
            [model] = client.models()
            assert model.name == "tiny"
            assert client.translate("a", num_beams=2, max_new_tokens=4).hypotheses[0].tokens <= 4
            assert len(client.encode("a").values) == model.width
        with grpc.insecure_channel(server.target) as channel:
            health: Any = HealthStub(channel)  # whose types do not know that it has methods
            for name in ("", *SERVICES):
                assert health.Check(HealthCheckRequest(service=name)).status == HealthCheckResponse.SERVING
            assert {*SERVICES, "grpc.health.v1.Health"} <= set(reflected(channel))
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics").read().decode()
        assert 'dragoman_finished_total{model="tiny",reason=' in metrics
        assert 'dragoman_rows_capacity{model="tiny"} 16.0' in metrics
        assert 'provider="CPUExecutionProvider"' in metrics
        assert server.end(signal.SIGTERM) == 0


def reflected(channel: grpc.Channel) -> Sequence[str]:
    requests = iter([ServerReflectionRequest(list_services="")])
    stub: Any = ServerReflectionStub(channel)
    [response] = stub.ServerReflectionInfo(requests)
    return [service.name for service in response.list_services_response.service]


def test_ctrl_c_ends_it_cleanly(tiny_package: Package) -> None:
    with server_process(tiny_package.folder) as server:
        assert server.end(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("grace_period_s", "signals"), [(0.1, [signal.SIGTERM]), (1000, [signal.SIGTERM, signal.SIGINT])]
)
def test_a_call_that_does_not_end_is_given_its_time_unless_a_second_signal_comes(
    tiny_package: Package, grace_period_s: float, signals: list[signal.Signals]
) -> None:
    with server_process(tiny_package.folder, "--grace-period-s", grace_period_s) as server:
        with grpc.insecure_channel(server.target, SMALL_WINDOW) as channel:
            request = StreamTranslateRequest(content="a")
            call = TranslationServiceStub(channel).StreamTranslate(request)
            assert call.initial_metadata() is not None  # the first message is under way, and will not be read
            assert server.end(*signals) == 0
            call.cancel()
        assert server.process.stderr is not None
        assert "1 calls are still running and are answered with DRAINING" in server.process.stderr.read()


@pytest.mark.parametrize("flag", ["--port", "--metrics-port"])
def test_a_port_in_use_is_named_with_the_way_out(flag: str, tiny_package: Package) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        told = refused("--package", tiny_package.folder, flag, port)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in told
    assert f"choose another port with {flag} " in told


def test_a_package_that_is_not_signed_is_refused_where_it_has_to_be(tiny_package: Package, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("no key")
    assert f"{key} is no public key" in refused("--package", tiny_package.folder, "--require-signed", key)
    public = Ed25519PrivateKey.generate().public_key()
    key.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    assert "is not signed" in refused("--package", tiny_package.folder, "--require-signed", key)


def test_a_folder_that_is_no_package_is_named(tmp_path: Path) -> None:
    told = refused("--package", tmp_path)
    assert str(tmp_path) in told
    assert "manifest.json" in told
    assert "python -m export" in told


@pytest.mark.parametrize("how", ["missing", "truncated", "altered"])
def test_a_damaged_file_of_the_package_is_named(how: str, tiny_package: Package, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    shutil.copytree(tiny_package.folder, folder)
    file = folder / "decoder.onnx"
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if how == "truncated" else bytes([data[0] ^ 1]) + data[1:])
    assert str(file) in refused("--package", folder)


async def test_engines_that_fail_too_often_end_it_with_code_1(
    tiny_package: Package, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    decoder = CopyDecoder()
    monkeypatch.setattr("engine.loading.load.CpuDecoder", lambda *arguments: decoder)
    settings = Settings(
        package=(tiny_package.folder,), workers=1, port=0, metrics_port=0, http=False, kernels="off", engine_restarts=0
    )
    serving = asyncio.create_task(serve_here(settings))
    await eventually(lambda: "serving tiny" in caplog.text)
    decoder.step_error = RuntimeError("bad kernel")
    port = re.findall(r"serving tiny on 127\.0\.0\.1:(\d+)", caplog.text)[0]
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        with pytest.raises(Internal, match="engine failed"):
            await client.translate("a")
        async with asyncio.timeout(WAIT_S):
            assert await serving == 1
    assert "engines have failed too often" in caplog.text


async def test_what_does_not_decode_is_never_served(
    tiny_package: Package, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    decoder = CopyDecoder(step_error=RuntimeError("bad kernel"))
    monkeypatch.setattr("engine.loading.load.CpuDecoder", lambda *arguments: decoder)
    with pytest.raises(DeviceError, match="the model does not decode: bad kernel"):
        ports: dict[str, Any] = {"port": 0, "metrics_port": 0, "http": False}
        await serve_here(Settings(package=(tiny_package.folder,), workers=1, kernels="off", **ports))
    assert "serving tiny" not in caplog.text


def test_a_device_that_is_not_there_is_told(tiny_package: Package) -> None:
    """The tests' machine has the onnxruntime for CPUs."""
    told = refused("--package", tiny_package.folder, "--device", "cuda")
    assert "is built without CUDA" in told
    assert "pip install '.[cuda]'" in told


def test_the_device_that_was_chosen_is_told(tiny_package: Package) -> None:
    with server_process(tiny_package.folder, "--device", "auto") as server:
        assert "--device auto chooses cpu: the installed ONNX Runtime" in server.told
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics").read().decode()
        assert 'dragoman_device_info{asked="auto",compute_capability="",device="cpu",driver="",' in metrics
        assert 'dragoman_cuda_graphs{model="tiny"} 0.0' in metrics
        [probe_s] = re.findall(r'dragoman_probe_seconds{model="tiny"} (\S+)', metrics)
        assert float(probe_s) > 0


@pytest.mark.parametrize(("flag", "told"), [("--help", "--max-concurrent-streams"), ("--version", __version__)])
def test_what_needs_no_engine_imports_none(flag: str, told: str) -> None:
    lines = ["import sys", "from server.__main__ import main", "try:", "  main(sys.argv[1:])", "finally:"]
    code = "\n".join([*lines, "  print('onnxruntime' in sys.modules)"])
    done = subprocess.run([sys.executable, "-c", code, flag], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told in done.stdout
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(("flag", "unbuffered"), [("--help", ""), ("--help", "1"), ("--version", "1")])
def test_help_that_has_no_room_is_told(flag: str, unbuffered: str) -> None:
    with open("/dev/full", "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "server", flag],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=output,
            stderr=subprocess.PIPE,
        )
    assert (done.returncode, done.stderr) == (2, b"python -m server: standard output: No space left on device\n")


SIGNALLED = """
import os, signal, sys
from server.__main__ import main

class Importing:
    def find_spec(self, name, *_):
        if name == "server.config":
            os.kill(os.getpid(), signal.Signals[sys.argv[1]])

sys.meta_path.insert(0, Importing())
main([])
"""
"""A server that gets a signal when it has hardly begun: while it imports."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_that_is_still_being_imported(number: signal.Signals) -> None:
    command = [sys.executable, "-c", SIGNALLED, number.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


COLLECTING = """
import gc, signal, sys
from server.__main__ import main

def tell(*_):
    print("collects:", gc.isenabled(), file=sys.stderr, flush=True)

signal.signal(signal.SIGUSR1, tell)
sys.exit(main(sys.argv[1:]))
"""
"""A server that tells whether garbage is collected."""


def test_garbage_is_collected_once_it_serves(tiny_package: Package) -> None:
    with server_process(tiny_package.folder, program=COLLECTING) as server:
        assert server.process.stderr is not None
        server.process.send_signal(signal.SIGUSR1)
        line = next(line for line in server.process.stderr if line.startswith("collects: "))
        assert line == "collects: True\n"
    assert main(["--no-such-flag"]) == 2
    assert gc.isenabled()


def test_settings_that_cannot_be_are_told(tiny_package: Package) -> None:
    assert "--max-rows is '0'" in refused("--max-rows", 0)
    assert "max_new_tokens is 100000; the model takes" in refused(
        "--package", tiny_package.folder, "--max-new-tokens", 100000
    )
    told = refused("--package", tiny_package.folder, "--memory-mb", 50, "--log-level", "warning")
    assert "; 50 MB may be used (--memory-mb): not even one row fits" in told


def test_memory_for_telling_languages_apart_is_counted(tiny_package: Package) -> None:
    """By HTTP nobody need say the language of a text: what finds it takes as much as a model, once somebody asks."""
    flags = "--package", tiny_package.folder, "--port", 0, "--metrics-port", 0, "--http-port", 0, "--memory-mb", 50
    told = [run(*flags, http).stderr for http in ("--http", "--no-http")]
    with_http, without = (int(line.split("callers ")[1].split(")")[0]) for line in told)
    assert with_http - without > 110


def test_onnx_runtime_reports_to_nobody(tiny_package: Package, tmp_path: Path) -> None:
    """It would keep a database in the home folder."""
    code = (
        "import sys; from pathlib import Path; from engine.devices.session import CPU, open_session; "
        "open_session(Path(sys.argv[1]), CPU)"
    )
    environment = {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code, str(tiny_package.graphs().encoder)], env=environment, check=True)
    assert list(tmp_path.rglob("*")) == []


def test_whoever_asks_for_help_or_is_refused_keeps_the_signals() -> None:
    """`main` in a process that goes on, as tests of the documentation have it."""
    numbers = signal.SIGTERM, signal.SIGINT
    before = [signal.getsignal(number) for number in numbers]
    with pytest.raises(SystemExit):
        main(["--help"])
    assert main(["--package", "nowhere", "--prot", "1"]) == 2
    assert [signal.getsignal(number) for number in numbers] == before
