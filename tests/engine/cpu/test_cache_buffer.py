"""engine.host.cache_memory, engine.cpu.cache_buffer: room for rows, and what they hold, against lists."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from numpy.typing import NDArray

from engine.cpu.cache_buffer import CacheBuffer
from engine.host.cache_memory import STEP
from models.package.declared.tensors import Axis, CacheTensor

TENSORS, ROWS, HEADS, HEAD_DIM = 2, 5, 3, 4
LONGEST = 7 * STEP + 5

lengths = st.integers(1, LONGEST) | st.integers(1, STEP)


class Rows(RuleBasedStateMachine):
    """Rows that join, grow, are copied and leave, as those of a running batch do."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = make()
        self.rows: list[list[float]] = []
        """What each live row holds, a number for each position."""
        self.written = 0.0

    @property
    def longest(self) -> int:
        return max(map(len, self.rows), default=0)

    @precondition(lambda self: len(self.rows) < ROWS)
    @rule(length=lengths)
    def join(self, length: int) -> None:
        self.fit(max(length, self.longest))
        self.rows.append([])
        self.write(len(self.rows) - 1, length)

    @precondition(lambda self: self.rows)
    @rule(row=st.integers(0, ROWS - 1), length=lengths)
    def extend(self, row: int, length: int) -> None:
        row %= len(self.rows)
        length = min(length, LONGEST - len(self.rows[row]))
        self.fit(max(len(self.rows[row]) + length, self.longest))
        self.write(row, length)

    @precondition(lambda self: self.rows)
    @rule(parent=st.integers(0, ROWS - 1), row=st.integers(0, ROWS - 1))
    def copy(self, parent: int, row: int) -> None:
        parent, row = parent % len(self.rows), row % len(self.rows)
        self.buffer.copy(parent, row, len(self.rows[parent]))
        self.rows[row] = list(self.rows[parent])

    @precondition(lambda self: self.rows)
    @rule(row=st.integers(0, ROWS - 1))
    def leave(self, row: int) -> None:
        row %= len(self.rows)
        last = len(self.rows) - 1
        self.buffer.copy(last, row, len(self.rows[last]))
        self.rows[row] = self.rows[last]
        del self.rows[last]
        if self.rows:
            self.fit(self.longest)

    @invariant()
    def contents_are_kept(self) -> None:
        for row, held in enumerate(self.rows):
            assert (self.buffer.array[:, row, :, : len(held)] == contents(held)).all()

    @invariant()
    def there_is_room(self) -> None:
        assert self.buffer.array.shape == (TENSORS, ROWS, HEADS, self.buffer.capacity, HEAD_DIM)
        assert self.longest <= self.buffer.capacity <= LONGEST

    def fit(self, needed: int) -> None:
        before = self.buffer.array
        assert self.buffer.fit(needed, slice(len(self.rows))) == (self.buffer.array is not before)
        assert needed <= self.buffer.capacity < 4 * (needed + STEP)

    def write(self, row: int, length: int) -> None:
        start = len(self.rows[row])
        self.rows[row] += [self.written + step for step in range(1, length + 1)]
        self.written += length
        self.buffer.array[:, row, :, start : start + length] = contents(self.rows[row])[:, :, start:]


def contents(held: list[float]) -> NDArray[np.float32]:
    """Another value in every place [tensors, heads, length, head_dim]."""
    places = np.arange(TENSORS * HEADS * HEAD_DIM).reshape(TENSORS, HEADS, 1, HEAD_DIM) / 128
    return (np.array(held).reshape(1, 1, -1, 1) + places).astype(np.float32)


TestRows = Rows.TestCase
TestRows.settings = settings(max_examples=40, stateful_step_count=25)


def make(longest: int = LONGEST) -> CacheBuffer:
    axes: tuple[Axis, ...] = ("rows", HEADS, "target", HEAD_DIM)
    names = [f"past{index}" for index in range(TENSORS)]
    tensors = [
        CacheTensor(past=name, present=f"present_{name}", precision="fp32", axes=axes, owner="hypothesis")
        for name in names
    ]
    return CacheBuffer(tensors, ROWS, longest)


@given(lengths)
def test_capacity_is_what_is_needed_in_whole_steps(needed: int) -> None:
    buffer = make()
    buffer.fit(needed, slice(0))
    assert buffer.capacity == min(-(-needed // STEP) * STEP, LONGEST)


def test_nothing_changes_while_there_is_room() -> None:
    buffer = make()
    assert buffer.capacity == STEP
    assert not buffer.fit(STEP, slice(1))
    assert buffer.fit(STEP + 1, slice(1))
    assert buffer.capacity == 2 * STEP
    assert not buffer.fit(1, slice(1))


def test_far_too_much_room_is_given_up_and_some_is_kept() -> None:
    buffer = make()
    buffer.fit(4 * STEP, slice(0))
    assert not buffer.fit(STEP + 1, slice(1))
    assert buffer.fit(STEP, slice(1))
    assert buffer.capacity == 2 * STEP
    assert not buffer.fit(2 * STEP, slice(1))


def test_rows_that_are_not_live_are_not_kept() -> None:
    buffer = make()
    buffer.array[...] = 1
    buffer.fit(STEP + 1, slice(2))
    assert (buffer.array[:, :2, :, :STEP] == 1).all()
    assert not buffer.array[:, 2:].any()
    assert not buffer.array[:, :, :, STEP:].any()


def test_copy_leaves_the_rest_of_the_row() -> None:
    buffer = make()
    buffer.array[:, 0], buffer.array[:, 1] = 1, 2
    buffer.copy(0, 1, length=3)
    assert (buffer.array[:, 1, :, :3] == 1).all()
    assert (buffer.array[:, 1, :, 3:] == 2).all()


def test_limit_below_a_step() -> None:
    buffer = make(longest=3)
    assert buffer.capacity == 3
    assert not buffer.fit(3, slice(1))


def test_more_than_a_row_can_need_is_refused_with_both_numbers() -> None:
    buffer = make(longest=40)
    with pytest.raises(ValueError, match="a row needs 41 positions; the cache was opened for 40"):
        buffer.fit(41, slice(1))
    assert buffer.fit(40, slice(1))
    assert buffer.capacity == 40
