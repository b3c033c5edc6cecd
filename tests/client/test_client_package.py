"""What the package `dragoman` shows: the same methods for both clients, types of its own, one tree of errors."""

import inspect
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from google.protobuf.message import Message
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dragoman
from dragoman import AsyncClient, Client, errors
from dragoman.errors import DragomanError
from tests.client.clients import Call
from tests.client.fake_server import FakeServer

ROOT = Path(__file__).parents[2]
USE_ALL = """
import pkgutil, sys
import dragoman
LACKING = {  # the engine is not in it, and matplotlib and Ray are extras
    "dragoman.local": "server is not installed here: in a checkout of Dragoman",
    "dragoman.command.heat_maps": "No module named",
    "dragoman.bulk.cluster.node_engine": "No module named",
    "dragoman.bulk.cluster.on_ray": "No module named",
    "dragoman.bulk.cluster.parts": "No module named",
}
for module in pkgutil.walk_packages(dragoman.__path__, "dragoman."):
    if module.name in LACKING:
        try:
            __import__(module.name)
        except ModuleNotFoundError as error:
            assert LACKING[module.name] in str(error), error
        else:
            raise AssertionError("it was imported")
    elif not module.name.endswith("__main__"):
        __import__(module.name)
assert dragoman.__file__.startswith(sys.prefix), dragoman.__file__
print(dragoman.__version__)
"""


def public_methods(kind: type) -> dict[str, Any]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name != "close"
    }


def test_both_clients_have_the_same_methods() -> None:
    ours, theirs = public_methods(Client), public_methods(AsyncClient)
    assert ours.keys() == theirs.keys() >= {"translate", "stream_translate", "encode", "models", "model", "health"}
    for name in ours:
        assert inspect.signature(ours[name]).parameters == inspect.signature(theirs[name]).parameters


def test_every_method_takes_a_deadline_of_30_seconds_unless_told_but_one_of_an_hour() -> None:
    for kind in (Client, AsyncClient):
        for name, method in public_methods(kind).items():
            assert inspect.signature(method).parameters["timeout_s"].default == {"reload": 3600.0}.get(name, 30.0)


def test_no_protobuf_in_what_the_clients_return(server: FakeServer, call: Call) -> None:
    results = [
        call(server.target, "translate", "hello"),
        call(server.target, "encode", "hello"),
        call(server.target, "models")[0],
        *call(server.target, "stream_translate", "hello"),
    ]
    for result in results:
        for name in result.__dataclass_fields__:
            assert not isinstance(getattr(result, name), Message)
        with pytest.raises(AttributeError):
            setattr(result, next(iter(result.__dataclass_fields__)), None)
        hash(result)


def test_every_public_name_exists_once() -> None:
    assert len(set(dragoman.__all__)) == len(dragoman.__all__)
    assert all(hasattr(dragoman, name) for name in dragoman.__all__)


def test_the_error_tree_is_drawn_as_it_is() -> None:
    drawn = re.findall(r"^[ │├└─]*([A-Z]\w+)  ", errors.__doc__ or "", re.MULTILINE)
    kinds = [
        kind.__name__ for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DragomanError)
    ]
    assert sorted(drawn) == sorted(kinds)


def test_the_version_is_that_of_the_distribution() -> None:
    project = ROOT / "pyproject.toml"
    assert f'\nversion = "{dragoman.__version__}"\n' in project.read_text(encoding="utf-8")


def test_help_and_version_need_no_grpc() -> None:
    for argv in (["--help"], ["--version"], []):
        code = f"import sys; from dragoman.command.main import main; main({argv}); assert 'grpc' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=Path(__file__).parents[2])


def test_little_is_imported_before_ctrl_c_is_understood() -> None:
    """While `main` is imported, Ctrl-C is a traceback; asyncio took more than half of that time."""
    code = "import sys, dragoman.command.main; assert not {'asyncio', 'grpc', 'ssl'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=Path(__file__).parents[2])


def test_what_is_no_public_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'dragoman' has no attribute 'Clients'"):
        _ = dragoman.Clients  # type: ignore[attr-defined]
    assert set(dragoman.__all__) <= set(dir(dragoman))


def test_the_wheel_brings_what_the_client_needs_and_nothing_else(tmp_path: Path) -> None:
    """Installed as pip would, from the environment of the tests: the wheel, what it requires, what that requires."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")}))
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    names = required(metadata.distributions(path=[str(site)]))
    assert names == {
        *("grpcio", "grpcio-health-checking", "protobuf", "googleapis-common-protos"),
        "typing-extensions",  # grpcio's
    }
    for name in names:
        install(metadata.distribution(name), site)
    done = subprocess.run([python, "-c", USE_ALL], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [dragoman.__version__]


def required(distributions: Iterable[metadata.Distribution]) -> set[str]:
    """What they require without an extra, and what that requires."""
    found: set[str] = set()
    waiting = list(distributions)
    while waiting:
        for line in waiting.pop().requires or ():
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                found.add(name)
                waiting.append(metadata.distribution(name))
    return found


def install(distribution: metadata.Distribution, site: Path) -> None:
    """Copies a package that is installed here."""
    for file in distribution.files or ():
        if ".." not in file.parts:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(str(file.locate())), site / file)
