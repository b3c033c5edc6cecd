"""Clients that nobody here wrote, unchanged and in environments of their own, against a real server of the zoo."""

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.process import free_port
from tests.server_process import eventually, server_process
from tests.serving import ZOO

SERVER_TESTS = Path(__file__).parents[1]
PYTHON = Path(sys.prefix) / "clients" / "bin" / "python"
NODE_SCRIPT = SERVER_TESTS / "node" / "clients.mjs"

Told = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    """Of gRPC and of HTTP."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with server_process(ZOO, "--http-port", port) as server:
        eventually(lambda: is_answered(url))
        yield server.target, url


def is_answered(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/health").close()
    except urllib.error.URLError:
        return False
    return True


def told(command: Sequence[object], addresses: tuple[str, str]) -> Told:
    ran = subprocess.run([*map(str, command), *addresses], capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: Told = json.loads(ran.stdout)
    return found


def check(found: Told) -> None:
    """All of them got the translation, and were refused what there is not."""
    for name, one in found.items():
        assert one.get("translation", "Bom dia.") == "Bom dia." and one["refused"], (name, one)


@pytest.mark.skipif(not PYTHON.exists(), reason="no environment with clients: make tools")
def test_clients_of_pypi_and_commands(addresses: tuple[str, str]) -> None:
    found = told([PYTHON, SERVER_TESTS / "foreign" / "clients.py"], addresses)
    if found["buf curl"] == {"missing": "buf curl"}:  # there is no npm here
        del found["buf curl"]
    check(found)
    assert found["argostranslate"]["languages"] == ["en", "pt"]
    assert found["openai"]["numbers"] == 256
    assert {"dragoman.v1.TranslationService", "grpc.health.v1.Health"} <= {*found["grpcurl"]["services"]}


@pytest.mark.skipif(
    not (NODE_SCRIPT.parent / "node_modules").exists() or not shutil.which("node"), reason="no clients: make tools"
)
def test_clients_of_npm(addresses: tuple[str, str]) -> None:
    found = told(["node", NODE_SCRIPT], addresses)
    check(found)
    assert found["@grpc/grpc-js"]["stream"] == found["@connectrpc/connect"]["binary"] == "Bom dia."
