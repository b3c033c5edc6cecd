"""GoOn against numpy, and against the engine's own search and history: on CUDA too, where there is a GPU."""

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from bench.gpu.sides.operators import Arrays, Case
from engine.cuda.lanes.layout import Layout
from engine.cuda.placing.history import History
from engine.cuda.placing.rows import Rows
from engine.decoder import Found
from engine.search.beam_rows import BeamRows
from kernels.device_library import LIBRARY
from models.decoding import Decoding
from tests.fakes import rules_of

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="make -C kernels device")

PROVIDERS = [
    name for name in ("CPUExecutionProvider", "CUDAExecutionProvider") if name in ort.get_available_providers()
]
POSITION, SOURCE_LAST, SLOT, SOURCE_SLOT, PARENT, FIRST, WIDTH = range(7)
END, SUPPRESSED = 2, 9


def go_on(widths: Sequence[int], k: int, places: int, spare: int, random: np.random.Generator) -> Case:
    """Searches of so many rows side by side, at random positions in random slots. 0: a row that fills up the step.

    spare: rows that there would be room for. A few tokens can be nobody's next.
    """
    of_search = np.repeat(np.arange(len(widths)), np.maximum(1, widths))
    rows, width = len(of_search), np.array(widths)[of_search]
    slots = rows + spare + 1
    numbers = np.full((7, rows + spare), -1, np.int32)
    numbers[:, :rows] = [
        random.integers(0, places - 1, len(widths))[of_search],
        random.integers(0, 99, rows),
        np.where(width > 0, random.permutation(slots - 1)[:rows], slots - 1),
        random.integers(0, slots, rows),
        np.arange(rows),
        np.searchsorted(of_search, of_search),
        width,
    ]
    inputs: Arrays = {
        "candidates": np.stack([random.permutation(40 + k)[:k] for _ in range(rows)]),
        "log_probs": -np.sort(random.exponential(2.0, (rows, k)).astype(np.float32)),
        "never": np.array([3, 7, 11, -1]),
        "costs": random.exponential(3.0, rows),
        "numbers": numbers,
        "history": random.integers(0, slots, (slots, places), np.int32),
    }
    outputs = {
        "next_ids": TensorProto.INT64,
        "next_costs": TensorProto.DOUBLE,
        "next_numbers": TensorProto.INT32,
        "next_history": TensorProto.INT32,
    }
    return Case("GoOn", inputs, outputs, {"next_history": "history"})


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def expected(case: Case) -> dict[str, NDArray[np.int64] | NDArray[np.float64] | NDArray[np.int32]]:
    """What numpy makes of it."""
    given, rows = case.inputs, len(case.inputs["costs"])
    ids, costs = np.zeros(rows, np.int64), given["costs"].copy()
    numbers, history = given["numbers"].copy(), given["history"].copy()
    for row in range(rows):
        width = int(given["numbers"][WIDTH, row])
        if given["numbers"][FIRST, row] != row or not width:
            continue
        all_costs = (given["costs"][row : row + width, None] - given["log_probs"][row : row + width]).ravel()
        tokens = given["candidates"][row : row + width].ravel()
        order = [at for at in all_costs.argsort(kind="stable") if tokens[at] not in given["never"]]
        chosen = np.array(order[:width] if width > 1 else [0])
        parents = row + chosen // given["candidates"].shape[1]
        slots = given["numbers"][SLOT]
        free = sorted(slots[old] for old in range(row, row + width) if old not in parents)
        for rank, (at, old) in enumerate(zip(chosen, parents, strict=True)):
            child, position, slot = row + rank, given["numbers"][POSITION, old] + 1, slots[old]
            if old in parents[:rank]:
                slot = free.pop(0)
                history[slot, :position], history[slot, position:] = given["history"][slots[old], :position], slot
            ids[child], costs[child] = tokens[at], all_costs[at]
            of_parent = given["numbers"][:, old]
            numbers[:, child] = position, of_parent[SOURCE_LAST], slot, of_parent[SOURCE_SLOT], old, row, width
    return {"next_ids": ids, "next_costs": costs, "next_numbers": numbers[:, :rows], "next_history": history}


def check(case: Case, provider: str) -> None:
    found = case.run(LIBRARY, provider)
    found["next_numbers"] = found["next_numbers"][:, : len(found["next_ids"])]
    for name, array in expected(case).items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("widths", "k"),
    [([1], 8), ([4], 8), ([1, 1, 0, 0], 2), ([1, 4, 3, 1, 4, 0, 0], 8), ([16], 64), ([4] * 32, 8), ([7, 2] * 9, 13)],
    ids=str,
)
def test_rows_go_on_as_numpy_has_it(widths: Sequence[int], k: int, provider: str) -> None:
    for seed in range(5):
        check(go_on(widths, k, places=300, spare=seed, random=np.random.default_rng(seed)), provider)


def test_of_equal_costs_the_better_parents_is_first(provider: str) -> None:
    case = go_on([4, 4], 8, places=9, spare=0, random=np.random.default_rng(1))
    case.inputs["costs"][:], case.inputs["log_probs"][:] = 1.5, -2
    check(case, provider)


def test_what_is_not_finite_is_behind_all_others_and_harms_no_other_search(provider: str) -> None:
    case = go_on([1, 3, 4], 8, places=9, spare=0, random=np.random.default_rng(2))
    case.inputs["log_probs"][1], case.inputs["log_probs"][0], case.inputs["candidates"][0] = np.nan, np.nan, -1
    found = case.run(LIBRARY, provider)
    assert found["next_ids"][0] == 0
    assert set(found["next_numbers"][PARENT, 1:4].tolist()) <= {2, 3}
    case.inputs["log_probs"][1:4] = np.nan
    broken = case.run(LIBRARY, provider)
    assert (broken["next_numbers"][PARENT, 1:4] < 4).all()
    for name in ("next_ids", "next_costs", "next_numbers"):
        np.testing.assert_array_equal(broken[name][..., 4:], found[name][..., 4:])


def test_too_few_candidates_leave_every_row_to_itself(provider: str) -> None:
    case = go_on([3], 2, places=9, spare=0, random=np.random.default_rng(3))
    case.inputs["candidates"][:] = 7
    found = case.run(LIBRARY, provider)
    assert found["next_ids"].tolist() == [7, 7, 7] and found["next_numbers"][PARENT].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("number", "value", "message"),
    [
        (WIDTH, 17, "row 0 is one of 17; 16 at most"),
        (FIRST, 2, "row 0 cannot be one of 4 that begin at 2"),
        (SLOT, 9, "row 0 has slot 9; there are 5"),
    ],
)
def test_searches_that_are_none_are_refused(number: int, value: int, message: str) -> None:
    case = go_on([4], 8, places=9, spare=0, random=np.random.default_rng(4))
    case.inputs["numbers"][number, 0] = value
    with pytest.raises(Exception, match=message):
        case.run(LIBRARY, "CPUExecutionProvider")


class Searched:
    """Beam searches with their histories, of a model of random numbers, beside greedy rows."""

    def __init__(self, widths: Sequence[int], places: int, seed: int) -> None:
        self.random, rows = np.random.default_rng(seed), sum(widths) + 2
        self.rows = Rows(rows)
        self.history = History(self.rows, places, np.empty(History.table_numbers(rows, places), np.int32), _no_copies)
        self.beams = BeamRows()
        for width in widths:
            row = self.rows.join(source_length=int(self.random.integers(1, 50)))
            self.history.join(row)
            decoding = Decoding(width, 1, places, 1.0, early_stopping="never")
            self.beams.search(row, decoding, rules_of(END, None, (SUPPRESSED,)))
        self.advance(self.found(len(widths)))

    def found(self, rows: int) -> Found:
        tokens = np.stack([self.random.permutation(30)[:8] for _ in range(rows)])
        return Found(tokens, -np.sort(self.random.exponential(1.0, (rows, 8)).astype(np.float32)))

    def advance(self, found: Found) -> None:
        self.beams.append(found)
        if self.beams.unsettled:
            assert not self.beams.settle(found)
        self.rows.advance()
        parents = self.beams.parents.copy()
        self.beams.place(np.arange(len(parents)))
        self.history.take(parents)
        self.rows.take(parents)

    def case(self, found: Found) -> Case:
        """The same step, to be foreseen."""
        outlook, live = self.beams.outlook, self.rows.live
        assert outlook is not None and len(found.token_ids) == live
        layout = Layout.of(outlook, live)
        numbers = np.zeros((7, len(self.rows)), np.int32)
        numbers[:4] = self.rows.positions, self.rows.source_last, *self.history.of_rows
        numbers[FIRST], numbers[FIRST, :live], numbers[WIDTH, :live] = (
            np.arange(len(self.rows)),
            layout.first,
            layout.width,
        )
        case = go_on([1], 1, 2, 0, self.random)
        inputs: Arrays = {"candidates": found.token_ids, "log_probs": found.log_probs, "never": outlook.never}
        inputs |= {"costs": outlook.costs(), "numbers": numbers, "history": self.history.history}
        return Case(case.operator, inputs, case.outputs, case.in_place)


def _no_copies(*copies: object) -> None:
    raise AssertionError("nothing has to be copied")


@pytest.mark.parametrize("widths", [[4], [2, 4, 7], [4] * 32], ids=str)
def test_the_engines_own_search_chooses_the_same(widths: Sequence[int], provider: str) -> None:
    searched = Searched(widths, places=200, seed=len(widths))
    for _ in range(60):
        found = searched.found(searched.rows.live)
        foreseen, live = searched.case(found).run(LIBRARY, provider), searched.rows.live
        searched.advance(found)
        assert searched.rows.live == live
        numbers, outlook = foreseen["next_numbers"][:, :live], searched.beams.outlook
        assert outlook is not None
        np.testing.assert_array_equal(foreseen["next_ids"], searched.beams.tokens)
        np.testing.assert_array_equal(foreseen["next_costs"], outlook.costs())
        np.testing.assert_array_equal(numbers[PARENT], searched.beams.parents)
        np.testing.assert_array_equal(numbers[POSITION], searched.rows.positions[:live])
        np.testing.assert_array_equal(numbers[[SLOT, SOURCE_SLOT]], searched.history.of_rows[:, :live])
        np.testing.assert_array_equal(foreseen["next_history"], searched.history.history)
