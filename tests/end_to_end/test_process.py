"""How a server ends, and when it does not start."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import grpc
import pytest

from dragoman import Unavailable, Unreachable
from dragoman.errors import from_rpc
from dragoman.v1.translation_pb2 import StreamTranslateRequest, TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from models.package.folder import Package
from tests.end_to_end.questions import ENDLESS, TEXTS
from tests.server_process import ROOT, WAIT_S, ServerProcess, eventually, server_command, server_process

pytestmark = pytest.mark.timeout(600)


def is_refused(stub: TranslationServiceStub) -> bool:
    """Whether a new call is told to go elsewhere: by the server, or by gRPC because it takes no more connections."""
    try:
        stub.Translate(TranslateRequest(contents=["A cat."]))
    except grpc.RpcError as error:
        refusal = from_rpc(error)
        if (
            refusal.code is grpc.StatusCode.CANCELLED
        ):  # gRPC's own, of a call that comes while the server begins to stop
            return False
        assert isinstance(refusal, Unreachable) or (isinstance(refusal, Unavailable) and refusal.reason == "DRAINING")
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_calls_finish_and_refuses_new_ones(number: signal.Signals, zoo_package: Package) -> None:
    with server_process(zoo_package.folder) as server, grpc.insecure_channel(server.target) as channel:
        stub = TranslationServiceStub(channel)
        stream = iter(stub.StreamTranslate(StreamTranslateRequest(content=TEXTS[0], decoding=ENDLESS)))
        texts = [next(stream).text_delta]
        server.process.send_signal(number)
        for _ in range(2):  # and goes on being so
            eventually(lambda: is_refused(stub))
        *deltas, last = stream
        texts += [delta.text_delta for delta in deltas]
        assert "".join(texts) == last.translation.hypotheses[0].text != ""
        assert last.translation.timings.steps == 511
        assert server.process.wait(WAIT_S) == 0


def does_not_start(*arguments: object) -> str:
    """What a server says that ends with code 2."""
    command = server_command("--port", 0, "--metrics-port", 0, "--no-http", *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    return done.stderr


@pytest.mark.parametrize("flag", ["--port", "--metrics-port"])
def test_a_port_in_use_is_named(flag: str, server: ServerProcess, zoo_package: Package) -> None:
    port = server.port if flag == "--port" else server.metrics_port
    assert f"127.0.0.1:{port}" in does_not_start("--package", zoo_package.folder, flag, port)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("weights.bin", "missing"),
        ("weights.bin", "truncated"),
        ("decoder.onnx", "altered"),
        ("source.spm", "altered"),
        ("manifest.json", "missing"),
        ("manifest.json", "truncated"),
    ],
)
def test_a_damaged_file_of_the_package_is_named(name: str, how: str, zoo_package: Package, tmp_path: Path) -> None:
    folder = tmp_path / "en-pt"
    shutil.copytree(zoo_package.folder, folder, copy_function=os.symlink)
    file = folder / name
    data = file.read_bytes()
    file.unlink()  # the link, and not what it leads to
    middle = len(data) // 2
    if how == "truncated":
        file.write_bytes(data[:middle])
    elif how == "altered":
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    told = does_not_start("--package", folder)
    assert str(folder) in told
    assert name in told
