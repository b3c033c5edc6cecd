"""What tests of several folders need: packages, exported with the code as it is, and clients."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import hypothesis
import pytest
import torch

from models.package.folder import Package
from tests import exported
from tests.checkpoints import ZOO, write_checkpoint
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
    return partial(exported.kept, cache.mkdir("packages"))


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
