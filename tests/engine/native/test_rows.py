"""engine.native.rows: what rows find in their slots, against a plain list for each row."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.native.rows import Rows
from kernels.library import Buffers, LibraryError, open_library

ROWS = 6


try:
    LIBRARY = open_library()
except LibraryError as error:
    pytest.skip(str(error), allow_module_level=True)


class Slots(RuleBasedStateMachine):
    """Rows that join, are fed, widened, reordered and leave; every slot remembers what was written there."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = Rows(ROWS, LIBRARY)
        self.expected: list[tuple[int, list[int]]] = []
        """Of each live row, its source and what it was fed."""
        self.decoded = np.zeros((1, ROWS, 1, 64, 1), np.float32)
        """What was written into each slot."""
        self.buffers = Buffers([self.decoded])
        self.sources = [0] * ROWS
        self.count = 0

    @precondition(lambda self: len(self.expected) < ROWS)
    @rule(length=st.integers(1, 9))
    def join(self, length: int) -> None:
        self.count += 1
        row = self.rows.join(length)
        assert row == len(self.expected)
        self.sources[self.rows.source_slots[row]] = self.count
        self.expected.append((self.count, []))

    @precondition(lambda self: self.expected)
    @rule()
    def feed(self) -> None:
        for row, (_, fed) in enumerate(self.expected):
            self.count += 1
            self.decoded[0, self.rows.slots[row], 0, self.rows.positions[row]] = self.count
            fed.append(self.count)
        self.rows.advance()

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        parents = data.draw(st.lists(st.integers(0, len(self.expected) - 1), max_size=ROWS))
        assert self.rows.take(parents, self.buffers).rows == len(parents) - len(set(parents))
        self.expected = [(self.expected[parent][0], list(self.expected[parent][1])) for parent in parents]

    @invariant()
    def rows_find_what_is_theirs(self) -> None:
        rows = self.rows
        assert rows.live == len(self.expected)
        for row, (source, fed) in enumerate(self.expected):
            assert self.sources[rows.source_slots[row]] == source
            assert rows.positions[row] == len(fed)
            assert self.decoded[0, rows.slots[row], 0, : len(fed), 0].tolist() == fed
        assert rows.furthest == max((len(fed) for _, fed in self.expected), default=rows.furthest)

    @invariant()
    def every_slot_is_somewhere_once(self) -> None:
        assert sorted(self.rows.slots.tolist()) == list(range(ROWS))


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=25)


def opened(lengths: list[int]) -> Rows:
    rows = Rows(ROWS, LIBRARY)
    for length in lengths:
        rows.join(length)
    return rows


def test_leaving_copies_nothing_and_moves_no_memory() -> None:
    rows = opened([3, 1, 4, 1, 5])
    arrays = rows.ids, rows.positions, rows.slots, rows.source_slots, rows.source_lengths
    addresses = [array.ctypes.data for array in arrays]
    assert rows.take([0, 4, 2]).rows == 0
    assert rows.slots[:3].tolist() == [0, 4, 2]
    assert rows.source_lengths[:3].tolist() == [3, 5, 4]
    after = rows.ids, rows.positions, rows.slots, rows.source_slots, rows.source_lengths
    assert [array.ctypes.data for array in after] == addresses


def test_only_a_second_child_is_copied() -> None:
    rows = opened([3, 1])
    rows.positions[:2] = 7, 9
    assert rows.take([1, 0, 1, 1]) == (2, 0, 9)
    assert rows.slots[:4].tolist() == [1, 0, 2, 3]
    assert rows.source_slots[:4].tolist() == [1, 0, 1, 1]


def test_source_slots_are_free_when_the_last_beam_has_left() -> None:
    rows = opened([3, 1])
    rows.take([0, 0, 1])
    rows.take([1, 2])
    assert rows.live_source_slots.tolist() == [0, 1]
    rows.take([1])
    assert rows.live_source_slots.tolist() == [1]
    rows.join(8)
    assert rows.source_slots[:2].tolist() == [1, 0]


def test_arrays_serve_as_parents_too() -> None:
    rows = opened([3, 1, 4])
    rows.take(np.array([2, 1]))
    assert rows.slots[:2].tolist() == [2, 1]


def test_nothing_and_everything_are_taken() -> None:
    rows = opened([3, 1, 4])
    assert rows.take([0, 1, 2]).rows == 0
    assert rows.take([]) == (0, 0, 0)
    assert rows.live == 0
    assert rows.longest_source == 0


def test_more_rows_than_there_are_do_not_join() -> None:
    rows = opened([1] * ROWS)
    with pytest.raises(ValueError, match="opened for 6"):
        rows.join(1)
