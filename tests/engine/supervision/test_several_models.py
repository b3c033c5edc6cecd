"""Several models on the same cores: each answers as if it were alone, whatever becomes of the others."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path

import pytest

from engine.devices.session import CPU
from engine.errors import Stopped
from engine.loading.load import Limits, Loadable, Plan, load, load_all
from engine.observer import Unobserved
from engine.offline import decode
from engine.queueing.cost import Work
from engine.request import Finished
from engine.runner import Runner
from engine.supervision.cores import Cores
from engine.supervision.policy import UNSUPERVISED, Supervision
from models.decoding import Decoding
from models.package.folder import Package
from tests.engine.calling import Call, RecordingDecoder, calls_of, sources_of
from tests.engine.supervision.faults import UNWATCHED, look_after
from tests.fakes import WAIT_S

ZOO = Path(__file__).parents[3] / "models" / "zoo"
TEXTS = (
    "The cat sleeps.",
    "O gato dorme.",
    "Where can I buy a ticket for the night train to Lisbon?",
    "a b c",
    "Rain.",
)
LIMITS = Limits(rows=6, workers=2, source_tokens=64, target_tokens=32)

Answer = list[tuple[tuple[int, ...], float]]


def asked(package: Package) -> list[tuple[tuple[int, ...], Decoding]]:
    """Twelve texts of all lengths, greedy and by beams."""
    tokenizer = package.tokenizer()
    decodings = cycle([Decoding(beams, beams, 24, 1.0, False) for beams in (1, 3, 1)])
    return [(tuple(tokenizer.encode(text)), next(decodings)) for text in islice(cycle(TEXTS), 12)]


def answers(runner: Runner, package: Package) -> list[Answer]:
    rules = Loadable.of(package).rules
    return [bits(finished) for finished in decode(runner, rules, asked(package))]


def bits(finished: Finished) -> Answer:
    return [(one.token_ids, one.score) for one in finished.hypotheses]


@pytest.mark.parametrize("several", [2, 5])
def test_models_under_mixed_load_answer_as_each_does_alone(several: int, tiny_package: Package) -> None:
    names = ("en-pt", "pt-en", "en-pt-int8")[: 2 if several == 2 else 3]
    packages = [Package.open(ZOO / name) for name in names]
    packages += [tiny_package] * (several - len(packages))
    alone: dict[str, list[Answer]] = {}
    for package in packages:
        if package.sha256 not in alone:
            with load(Loadable.of(package), CPU, LIMITS) as runner:
                alone[package.sha256] = answers(runner, package)
    plans = [Plan(Loadable.of(package), LIMITS, Unobserved()) for package in packages]
    with ExitStack() as running, ThreadPoolExecutor(several) as callers:
        runners = [running.enter_context(one) for one in load_all(plans, CPU, None, "auto", UNSUPERVISED)]
        together = list(callers.map(answers, runners, packages))
    assert together == [alone[package.sha256] for package in packages]


# One that fails


@contextmanager
def two(supervision: Supervision) -> Iterator[tuple[list[Runner], list[RecordingDecoder]]]:
    """Two models that copy, of one worker each, on one core."""
    decoders, cores = [RecordingDecoder(), RecordingDecoder()], Cores()
    with ExitStack() as running:
        runners = [Runner(one, 4, 1, Unobserved(), supervision=supervision, cores=cores) for one in decoders]
        for runner in runners:
            running.enter_context(runner)
        yield runners, decoders


def submit(runner: Runner, calls: Sequence[Call]) -> None:
    """All at once, as `Service.submit` does."""
    with runner._work:
        for call in calls:
            runner.submit(call.request)


@pytest.mark.parametrize("restarts", [0, 8])
def test_a_model_that_crashes_leaves_the_core_to_the_others(restarts: int) -> None:
    with two(Supervision(restarts=restarts)) as ([crashing, other], [broken, _]):
        broken.fault = lambda sources: (_ for _ in ()).throw(RuntimeError("broken"))
        crashed, others = calls_of(3), calls_of(20)
        submit(crashing, crashed)
        submit(other, others)
        assert [call.target for call in others] == sources_of(others)
        for call in crashed:
            assert call.error is not None
        if not restarts:
            late, later = Call(), calls_of(3)
            submit(crashing, [late])
            assert isinstance(late.error, Stopped)
            submit(other, later)
            assert [call.target for call in later] == sources_of(later)


def test_a_model_that_hangs_gives_the_core_up_once_that_is_noticed() -> None:
    hangs, hung = threading.Event(), threading.Event()

    def fault(sources: Sequence[tuple[int, ...]]) -> None:
        if not hung.is_set():
            hung.set()
            assert hangs.wait(WAIT_S)

    with two(UNWATCHED) as ([hanging, other], [broken, _]):
        broken.fault = fault
        calls, others = calls_of(3), calls_of(20)
        submit(hanging, calls)
        assert hung.wait(WAIT_S)
        submit(other, others)
        look_after(hanging)
        assert [call.target for call in others] == sources_of(others)
        assert [call.target for call in calls] == sources_of(calls)
        hangs.set()


def test_models_that_compute_make_each_other_late() -> None:
    with two(UNSUPERVISED) as ([one, other], [busy, _]):
        work = Work(1, 4.0, 4.0, 1, 4, "", False)
        alone = one.finish_s(work)
        busy.gate.close()
        call = Call()
        submit(one, [call])
        busy.gate.wait_until_held()
        assert other.finish_s(work) == pytest.approx(2 * alone)
        busy.gate.open()
        assert call.target == call.request.source_ids
