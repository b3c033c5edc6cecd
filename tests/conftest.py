"""What tests of several folders need: packages, exported with the code as it is, and clients."""

import gc
import os
import re
import signal
from collections.abc import Callable, Generator, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest

from models.package.folder import Package
from tests import exported
from tests.client.clients import Call, call_async, call_sync
from tests.client.fake_server import FakeServer, serving

# How long an example takes says more about what else the machine is doing.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# A shell that starts pytest in the background makes it ignore Ctrl-C, `nohup` that a terminal is closed, and so the
# processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

if TORCH := find_spec("torch") is not None:
    import torch

# The tests' models are small, and a core has its own tests: two threads spend twice the time, waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start; of this one, see `one_thread`

EXPORT_S = 600
"""Timeout of the tests that may have to wait for an export."""
EXPORTED = {"zoo_package", "tiny_package", "many_package", "keep_package"}
"""The fixtures that export."""
NOT_TO_SERVE = "torch|transformers|onnx|onnx_ir|onnxscript|rich|safetensors|sacrebleu|ctranslate2"
"""What export, training and oracles take, and neither the server nor the client."""
LONGEST_FILES = (
    "engine/exact/test_token_exact.py",
    "kernels/test_instruction_sets.py",
    "export/test_export.py",
    "export/test_encoders.py",
    "simulation/test_schedules.py",
    "training/test_learning.py",
    "engine/exact/test_families.py",
    "engine/exact/test_recurrent.py",
    "hostile/test_memory.py",
    "server/test_versions.py",
    "export/test_families_exported.py",
    "export/weights/test_stored.py",
    "engine/cuda/test_cuda_decoder.py",
    "engine/cuda/test_device_step.py",
    "export/native/test_native_weights.py",
    "engine/exact/test_prefix.py",
    "engine/logits/test_target_graphs.py",
    "hostile/test_fuzz.py",
    "bench/test_history.py",
    "training/test_recurrent_example.py",
    "end_to_end/test_history.py",
    "watch/test_truth.py",
)
"""Each takes half a minute of a core and more. What comes last should be short: a worker has a file for itself."""
COLLECT_EVERY = 10_000
"""New objects after which the garbage collector looks for cycles, as in a server. After Python's own 700, looking is a
tenth of the time of what is all Python: simulated schedules, fuzzed messages."""
TESTS = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Where torch is not installed (`make oldest`), modules that want it or its kin are skipped."""
    report = yield
    missing = re.search(rf"No module named '({NOT_TO_SERVE})", str(report.longrepr))
    if not TORCH and report.failed and missing:
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"{missing[1]} is not installed")
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that wants a package exports it. The longest files come first, so that nobody waits for one."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in items:
        if isinstance(item, pytest.Function) and EXPORTED & set(item.fixturenames):
            item.add_marker(pytest.mark.timeout(EXPORT_S))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nobody looks for garbage while modules are imported, nor ever again in what they have brought."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECT_EVERY)
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    """Whatever the module before has set, which torch keeps for the whole process."""
    if TORCH:
        torch.set_num_threads(1)


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
    return keep_package("en-pt", exported.ZOO) if TORCH else Package.open(exported.ZOO)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Marian checkpoint with random weights, 212 tokens and two layers. Copy it before you change it."""
    if not TORCH:
        pytest.skip("torch is not installed")
    from tests.checkpoints import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def tiny_package(tiny_checkpoint: Path, keep_package: Callable[..., Package]) -> Package:
    """The package of `tiny_checkpoint`. Copy it before you change it."""
    return keep_package("tiny", tiny_checkpoint)


@pytest.fixture(scope="session")
def many_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `tiny_checkpoint`, with a token for each of several target languages."""
    from tests.checkpoints import CODES, write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "many", codes=CODES)


@pytest.fixture(scope="session")
def many_package(many_checkpoint: Path, keep_package: Callable[..., Package]) -> Package:
    """The package of `many_checkpoint`. Copy it before you change it."""
    return keep_package("many", many_checkpoint)
