"""Steps that a device makes ahead, on the CPU provider as if it were one: what comes out is what came without them."""

import random
from collections.abc import Iterator, Sequence

import pytest

from engine.cuda.stepping.buckets import Bucket
from engine.decoder import Ask
from engine.devices.transfers import HostTransfers
from tests.engine.cpu.test_cpu_decoder import LONGEST
from tests.engine.cuda.test_cuda_decoder import Batches, Twins, open_twins, twins

__all__ = ["twins"]

pytestmark = pytest.mark.parametrize("twins", ["post-norm, relu"], indirect=True)

SIZES = 8
"""Found for which there are two lanes."""


@pytest.fixture
def ahead(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> Twins:
    """Decoders of which one makes steps ahead."""
    monkeypatch.setattr(HostTransfers, "asynchronous", True)
    return open_twins(twins.graphs, twins.config)


class Greedy(Batches):
    """Two caches, and the best token of every row."""

    def __init__(self, twins: Twins, rows: int) -> None:
        super().__init__(twins, rows)
        self.best: list[int] = []

    def step(self, tokens: Sequence[int], k: int) -> None:
        super().step(tokens, k)
        self.best = self.found.token_ids[:, 0].tolist()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of rows of every step that was made."""
    rows: list[int] = []
    run = Bucket.run

    def counting(self: Bucket) -> None:
        rows.append(self.rows)
        run(self)

    monkeypatch.setattr(Bucket, "run", counting)
    yield rows


def test_greedy_steps_are_asked_for_once(ahead: Twins, asked: list[int]) -> None:
    batches = Greedy(ahead, rows=5)
    batches.join([(3, 1, 4), (1, 5, 9, 2, 6), (5,)])
    batches.step([1, 2, 3], k=2)
    for _ in range(20):
        batches.step(batches.best, k=2)
    assert asked == [3]


def test_the_device_is_trusted_once_it_has_been_right(ahead: Twins, asked: list[int], begun: list[int]) -> None:
    """A step that is begun ahead of a search that chooses otherwise is for nothing, and the first one is enough."""
    batches = Greedy(ahead, rows=2)
    batches.join([(3, 1, 4)])
    del begun[:]
    for token in (5, 6, 7, 8):
        while token in batches.best:
            token += 1
        batches.step([token], k=2)
    assert asked == [1] * 4 and begun == [1] * 5
    batches.step(batches.best, k=2)  # as the device has it, who was not asked to begin
    assert asked == [1] * 4 and begun == [1] * 7


def test_rows_at_the_end_may_leave(ahead: Twins, asked: list[int]) -> None:
    batches = Greedy(ahead, rows=4)
    batches.join([(3, 1, 4), (1, 5, 9, 2, 6), (5,)])
    batches.step([1, 2, 3], k=1)
    for _ in range(5):
        batches.step(batches.best, k=1)
    batches.take([0, 1])
    for _ in range(5):
        batches.step(batches.best[:2], k=1)
    assert asked == [3, 2]  # once, for a step of their size


def test_moved_rows_are_asked_for(ahead: Twins, asked: list[int]) -> None:
    """Even if their tokens and positions are those of the rows that were there."""
    batches = Greedy(ahead, rows=2)
    batches.join([(3, 1, 4), (1, 5, 9, 2, 6)])
    for _ in range(4):
        batches.step([7, 7], k=1)
    while len(set(batches.best)) == 2 and batches.steps < 40:
        batches.step(batches.best, k=1)
    before = len(asked)
    batches.take([0, 0])
    batches.step([batches.best[0], batches.best[1]], k=1)
    assert len(asked) == before + 1


def test_wide_steps_are_asked_for(ahead: Twins, asked: list[int]) -> None:
    batches = Greedy(ahead, rows=2)
    batches.join([(3, 1, 4)])
    batches.step([1], k=1)
    for k in (1, 1, SIZES + 1, 1, 1, SIZES):
        batches.step(batches.best, k)
    # The first; the wide one; the one after it, which nothing was begun ahead of.
    assert len(asked) == 3


def test_nothing_is_made_ahead_of_the_end_of_the_room(ahead: Twins, asked: list[int]) -> None:
    batches = Greedy(ahead, rows=1)
    batches.join([(3, 1, 4)])
    batches.step([1], k=1)
    for _ in range(LONGEST - 1):
        batches.step(batches.best, k=1)
    assert len(asked) == 1
    with pytest.raises(ValueError, match=f"a row needs {LONGEST + 1} positions"):
        batches.device.begin_step(batches.best, Ask())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_comes_the_steps_are_the_same(ahead: Twins, asked: list[int], seed: int) -> None:
    batches, chance, rows = Greedy(ahead, rows=6), random.Random(seed), 6
    for _ in range(150):
        live = batches.device.live
        if live and chance.random() < 0.1:
            staying = chance.sample(range(live), k=chance.randint(0, live))
            copies = chance.choices(staying, k=chance.randint(0, rows - len(staying))) if staying else []
            batches.take(staying + copies)
            batches.best = batches.best[: batches.device.live]
        if batches.device.live == 0 or chance.random() < 0.05:
            room = rows - batches.device.live
            batches.join([ahead.random_tokens(chance, length) for length in chance.choices((1, 9, 40), k=min(2, room))])
        live = batches.device.live
        likely = (batches.best + [5] * live)[:live]
        tokens = likely if chance.random() < 0.9 else ahead.random_tokens(chance, live)
        if int(batches.device._rows.positions[:live].max()) + 1 < LONGEST:
            batches.step(tokens, k=chance.choice((1, 2, 2, 2, 100)))
        else:
            batches.take([])
    assert batches.steps / 5 < len(asked) < batches.steps


def test_steps_ahead_have_room_for_rows_that_have_left(ahead: Twins, asked: list[int]) -> None:
    """They are of the same size as before, and go on with them."""
    batches = Greedy(ahead, rows=7)
    batches.join([(3, 1, 4), (5,), (6,), (7,)])
    batches.step([1, 2, 3, 4], k=1)
    for _ in range(LONGEST - 20):
        batches.step(batches.best, k=1)
    batches.join([(1, 5, 9, 2, 6), (8,), (9,)])
    batches.take([3, 4, 5, 6])  # new rows take the first places
    batches.step([1, 2, 3, 4], k=1)
    for _ in range(2):
        batches.step(batches.best, k=1)
    batches.take([0, 1, 2])
    del asked[:]
    for _ in range(LONGEST - 20):
        batches.step(batches.best[:3], k=1)
    assert asked == [3]
