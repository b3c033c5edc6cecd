"""Packages for all tests: exported with the code as it is, and kept until that changes."""

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import hypothesis
import pytest
import torch

from models.package.folder import Package, sha256
from tests.checkpoints import ROOT, ZOO, write_checkpoint
from tests.client.clients import Call, call_async, call_sync
from tests.client.fake_server import FakeServer, serving

# How long an example takes says more about what else the machine is doing.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# A shell that starts pytest in the background makes it ignore Ctrl-C, and so the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests' models are small, and a core has its own tests: two threads spend twice the time, waiting for each other.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start

EXPORT_S = 600
"""Timeout of the tests that may have to wait for an export."""
EXPORTED = {"zoo_package", "tiny_package", "keep_package"}
"""The fixtures that export."""
LONGEST_FILE = "test_token_exact.py"
KEPT = 3
"""Packages of earlier states of the code that stay in pytest's cache."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that wants a package exports it. The longest file comes first, so that nobody waits for it."""
    items.sort(key=lambda item: item.path.name != LONGEST_FILE)
    for item in items:
        if isinstance(item, pytest.Function) and EXPORTED & set(item.fixturenames):
            item.add_marker(pytest.mark.timeout(EXPORT_S))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """What the client and the command line talk to; modules that test the real one have a `server` of their own."""
    with serving(FakeServer()) as server:
        yield server


@pytest.fixture(params=[call_sync, call_async], ids=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    """Of each of the clients."""
    function: Call = request.param
    return function


@pytest.fixture(scope="session")
def keep_package(request: pytest.FixtureRequest) -> Callable[..., Package]:
    """Exports a checkpoint, with some options and under a name, unless that was done before: it stays in the cache."""
    cache = request.config.cache
    assert cache is not None
    packages = cache.mkdir("packages")

    def keep(name: str, checkpoint: Path, *options: str) -> Package:
        folder = packages / _state_of_the_code() / f"{name}-{_digest(checkpoint)}"
        folder.parent.mkdir(exist_ok=True)
        # pytest may run in several processes: those that want the same package wait for the first.
        with _alone(folder.with_name(f"{folder.name}.lock")):
            if not folder.exists():
                _export(checkpoint, folder, *options)
                with _alone(packages / "lock"):
                    _prune(packages)
        return Package.open(folder)

    return keep


@pytest.fixture(scope="session")
def zoo_package(keep_package: Callable[..., Package]) -> Package:
    """The package of models/zoo/en-pt."""
    return keep_package("en-pt", ZOO)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Marian checkpoint with random weights, 212 tokens and two layers. Copy it before you change it."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def tiny_package(tiny_checkpoint: Path, keep_package: Callable[..., Package]) -> Package:
    """The package of `tiny_checkpoint`. Copy it before you change it."""
    return keep_package("tiny", tiny_checkpoint)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Only one process at a time is here with the same file."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _export(checkpoint: Path, folder: Path, *options: str) -> None:
    """In a process of its own, whose memory is gone afterwards."""
    command = [sys.executable, "-m", "export", str(checkpoint), "--out", str(folder), "--verify-samples", "2", *options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def _state_of_the_code() -> str:
    """A digest of all that decides, besides the checkpoint, what a package is."""
    code = {file for folder in ("models", "engine", "export") for file in (ROOT / folder).rglob("*.py")}
    tools = [version(tool) for tool in ("torch", "onnx-ir", "onnxscript", "onnxruntime")]
    return _short([*tools, *(f"{file.relative_to(ROOT)} {sha256(file)}" for file in sorted(code))])


def _digest(folder: Path) -> str:
    """Of its files' names and contents."""
    return _short([f"{file.name} {sha256(file)}" for file in sorted(folder.iterdir())])


def _short(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _prune(packages: Path) -> None:
    folders = [path for path in packages.iterdir() if path.is_dir()]
    for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(folder)
