"""Steps that a device makes ahead of beams, on the CPU provider as if it were one: nothing comes of it but time.

Whole requests run through a real engine with the step for GPUs of models/zoo/en-pt, with steps ahead and without.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.cuda.decoder import CudaDecoder
from engine.cuda.lanes.lane import Lane
from engine.cuda.stepping.buckets import Bucket
from engine.cuda.stepping.guess import Guess
from engine.cuda.stepping.step import CudaStep
from engine.decoder import Ask, Outlook
from engine.devices.session import CPU
from engine.devices.transfers import HostTransfers
from engine.search.beam_rows import BeamRows
from models.decoding import Decoding
from models.package.folder import Package
from tests.engine.cuda.test_device_step import WithKernels, package
from tests.engine.test_batch_invariance import LONGEST, TEXTS, Answer, Visit

__all__ = ["package"]

pytestmark = pytest.mark.timeout(600)


@dataclass
class Counted:
    """Steps of an engine."""

    fed: list[int] = field(default_factory=list)
    """Rows of each that was fed by the host."""
    made: int = 0
    right: int = 0
    """Guesses."""
    wrong: int = 0

    @property
    def asked(self) -> int:
        """That the engine asked for."""
        return len(self.fed) + self.right


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    counts = Counted()
    fill, run, rows_of = Lane.fill, Bucket.run, Guess.rows

    def counting_fill(self: Lane, token_ids: np.ndarray, *arguments: Any) -> None:
        counts.fed.extend([len(token_ids)] * bool(len(token_ids)))
        fill(self, token_ids, *arguments)

    def counting_run(self: Bucket) -> None:
        counts.made += 1
        run(self)

    def counting_rows(self: Guess, *arguments: Any) -> Any:
        rows = rows_of(self, *arguments)
        counts.right, counts.wrong = counts.right + (rows is not None), counts.wrong + (rows is None)
        return rows

    monkeypatch.setattr(Lane, "fill", counting_fill)
    monkeypatch.setattr(Bucket, "run", counting_run)
    monkeypatch.setattr(Guess, "rows", counting_rows)
    yield counts


class Ahead(WithKernels):
    """With steps ahead, whoever runs visits without them in the same test."""

    def together(self, visits: list[Visit]) -> list[Answer | None]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(HostTransfers, "asynchronous", True)
            return super().together(visits)


@pytest.fixture(scope="module")
def plain(package: Package) -> WithKernels:
    """Without steps ahead."""
    return WithKernels(package, "required")


@pytest.fixture(scope="module")
def ahead(package: Package) -> Ahead:
    return Ahead(package, "required")


def beams(num_beams: int, **options: Any) -> Decoding:
    return Decoding(num_beams, 1, LONGEST, 1.0, early_stopping=False, **options)


def visits(*searches: tuple[int, int, Decoding], patience: dict[int, int] | None = None) -> list[Visit]:
    """Each after a pause, with the number of its text. patience: of some of them."""
    return [
        Visit(pause, text % len(TEXTS), decoding, (patience or {}).get(number))
        for number, (pause, text, decoding) in enumerate(searches)
    ]


CASES = {
    "one": visits((0, 3, beams(4))),
    "several that end at different times": visits(*((0, text, beams(4)) for text in (0, 2, 4, 6, 9))),
    "joins and leavings": visits(
        *((pause, text, beams(4)) for pause, text in ((0, 1), (0, 7), (3, 2), (9, 5), (0, 0), (4, 8), (11, 3))),
        patience={1: 8, 4: 1, 5: 20},
    ),
    "greedy ones that join beams": visits(
        *((pause, text, beams(width)) for pause, text, width in ((0, 4, 4), (3, 3, 1), (1, 5, 1), (2, 6, 1), (5, 1, 1)))
    ),
    "greedy ones and beams": visits(
        *((pause, text, beams(width)) for pause, text, width in ((0, 4, 1), (0, 3, 4), (2, 5, 1), (0, 6, 2), (5, 1, 5)))
    ),
    "more sentences than rows": visits(*((0, text, beams(4)) for text in range(10))),
    "beams that shrink": visits(
        (0, 2, Decoding(4, 1, LONGEST, 1.0, True, num_beam_groups=2, diversity_penalty=0.5)),
        (0, 3, Decoding(4, 4, LONGEST, 0.0, True)),
        (1, 4, Decoding(3, 1, LONGEST, 2.0, "never")),
        (2, 1, beams(4, repetition_penalty=1.3)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_answers_are_the_same_to_the_last_bit(
    plain: WithKernels, ahead: Ahead, counted: Counted, case: str
) -> None:
    found = ahead.together(CASES[case])
    assert counted.right
    asked, right = counted.asked, counted.right
    assert found == plain.together(CASES[case])
    assert counted.right == right, "steps were made ahead without being asked to"
    assert counted.asked - asked == asked  # as many steps


def test_most_steps_of_beams_are_begun_before_they_are_asked_for(ahead: Ahead, counted: Counted) -> None:
    ahead.together(CASES["one"])
    made = counted.made
    # The prefix; the step with as many rows as beams.
    assert counted.fed[0] == 1 and counted.fed[1] == 4
    assert counted.right > 0.8 * counted.asked and counted.wrong <= 2
    del counted.fed[:]
    counted.right = counted.wrong = 0
    ahead.together(CASES["several that end at different times"])
    assert counted.right > 0.7 * counted.asked
    assert counted.made > made


@pytest.mark.parametrize(("parents", "made"), [([0, 1, 1], 2), ([1, 1, 0], 1)], ids=["of one", "of two"])
def test_rows_of_two_sentences_are_never_one_search(
    package: Package, monkeypatch: pytest.MonkeyPatch, counted: Counted, parents: list[int], made: int
) -> None:
    """Whatever a search says: the device would write to the slots of the other sentence."""
    monkeypatch.setattr(HostTransfers, "asynchronous", True)
    decoder = CudaDecoder.open_step(package.graphs(), LONGEST, LONGEST, CPU)
    cache = decoder.open_cache(4)
    for source in decoder.encode([(3, 1, 4), (5,)]):
        cache.join(source)
    cache.begin_step([1, 2], Ask(outlook=None))
    cache.end_step()
    cache.take(parents)
    before = counted.made
    cache.begin_step([3, 4, 5], Ask(4, outlook=Outlook(np.array([2]), np.zeros(0, np.int64), lambda: np.zeros(2))))
    assert counted.made - before == made


@pytest.mark.parametrize("trusts", [True, False], ids=["begun all the same", "not begun again"])
def test_a_wrong_guess_costs_a_step_and_nothing_else(
    plain: WithKernels, ahead: Ahead, counted: Counted, monkeypatch: pytest.MonkeyPatch, trusts: bool
) -> None:
    """The device is told other costs, and chooses otherwise: other tokens, of other parents, in other slots."""
    case = CASES["joins and leavings"]
    expected, chance, costs = plain.together(case), np.random.default_rng(1), BeamRows._costs_of_rows

    def wrong(self: BeamRows) -> NDArray[np.float64]:
        right = costs(self)
        return right if chance.random() < 0.5 else chance.permutation(right) + chance.exponential(1.0, len(right))

    monkeypatch.setattr(BeamRows, "_costs_of_rows", wrong)
    if trusts:
        monkeypatch.setattr(CudaStep, "_trusts", property(lambda step: True, lambda step, value: None), raising=False)
    counted.right = 0
    assert ahead.together(case) == expected
    assert counted.right > 10 and counted.wrong > 10
