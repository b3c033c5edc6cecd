"""kernels.rows: what is moved and copied, and what is refused."""

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.library import Buffers, Library
from kernels.rows import RowTable

ROOM = 6


class Table:
    """Rows in the slots 0, 1, ..., with so many positions."""

    def __init__(self, library: Library, positions: list[int]) -> None:
        self.live = len(positions)
        self.positions = np.array([*positions, *[0] * (ROOM - self.live)], np.int32)
        self.slots = np.arange(ROOM, dtype=np.int32)
        self.source_slots = np.arange(ROOM, dtype=np.int32)[::-1].copy()
        self.source_lengths = np.arange(10, 10 + ROOM, dtype=np.int32)
        self.table = RowTable(library, self.positions, self.slots, self.source_slots, self.source_lengths)

    def take(self, parents: list[int], *arrays: NDArray[np.generic]) -> tuple[int, int, int]:
        return self.table.take(self.live, parents, Buffers(arrays))


def test_second_children_are_copied_in_whole_blocks(library: Library) -> None:
    memory = np.random.default_rng(0).standard_normal((4, 9, 2, 48, 8)).astype(np.float32)
    before, table = memory.copy(), Table(library, [17, 48, 1])
    taken = table.take([1, 0, 1, 1, 0], memory[:, :ROOM])
    assert taken == (3, 4 * 2 * (48 + 48 + 32) * 8 * 4, 48)
    assert table.slots.tolist() == [1, 0, 2, 3, 4, 5]
    expected = before.copy()
    for source, target, places in ((1, 2, 48), (1, 3, 48), (0, 4, 32)):
        first = slice(2 * places * 8)
        expected.reshape(4, 9, -1)[:, target, first] = before.reshape(4, 9, -1)[:, source, first]
    np.testing.assert_array_equal(memory, expected)
    live = slice(5)
    assert table.positions[live].tolist() == [48, 17, 48, 48, 17]
    assert table.source_slots[live].tolist() == [4, 5, 4, 4, 5]
    assert table.source_lengths[live].tolist() == [11, 10, 11, 11, 10]


def test_states_are_copied_whole(library: Library) -> None:
    states = np.arange(2 * ROOM * 5, dtype=np.float32).reshape(2, ROOM, 1, 1, 5)
    cache, table = np.zeros((1, ROOM, 1, 64, 8), np.float16), Table(library, [40])
    assert table.take([0, 0], states, cache) == (1, 2 * 5 * 4 + 48 * 8 * 2, 40)
    np.testing.assert_array_equal(states[:, 1], states[:, 0])


@pytest.mark.parametrize(
    ("parents", "positions", "said"),
    [
        ([3], [1, 1, 1], "row 3 of 3"),
        ([0, -1], [1, 1, 1], "row -1 of 3"),
        ([0] * 7, [1], "7 rows, where there is room for 6"),
        ([0, 0], [17], "17 positions of a capacity of 16"),
    ],
)
def test_what_cannot_be_taken(library: Library, parents: list[int], positions: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Table(library, positions).take(parents, np.zeros((2, ROOM, 1, 16, 8), np.float32))


def test_memory_that_is_none(library: Library) -> None:
    with pytest.raises(ValueError, match="6 rows of a cache with 5 slots"):
        Table(library, [1]).take([0], np.zeros((2, ROOM - 1, 1, 16, 8), np.float32))
    with pytest.raises(ValueError, match="a cache is fp32 or fp16"):
        Table(library, [1]).take([0], np.zeros((2, ROOM, 1, 16, 8)))
    wide = np.zeros(ROOM, np.int64)
    with pytest.raises(ValueError, match="numbers of rows are int32, of 6 rows each"):
        RowTable(library, wide, *[np.arange(ROOM, dtype=np.int32)] * 3)  # type: ignore[arg-type]
