"""What a decoder step is fed, as it lies in memory: one array behind the other, each of all rows of the batch."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

NUMBERS = 7
"""Whole numbers of each row, but for its token."""
ROW_BYTES = 8 + 8 + 4 * NUMBERS


class Fed(NamedTuple):
    """On the host, as views of staging memory."""

    ids: NDArray[np.int64]
    """The token that each row is fed [rows]."""
    costs: NDArray[np.float64]
    """-sum(log p) of each hypothesis [rows]. This and the last three are there for the steps that follow alone."""
    numbers: NDArray[np.int32]
    """The others, in the order in which kernels/device/go_on.h has them [7, rows]."""
    positions: NDArray[np.int32]
    source_last: NDArray[np.int32]
    """The place of each row's last source token."""
    slots: NDArray[np.int32]
    source_slots: NDArray[np.int32]
    parents: NDArray[np.int32]
    """The row of the step before that each continues, as the device chose it."""
    first: NDArray[np.int32]
    """The first row of each row's search."""
    width: NDArray[np.int32]
    """How many rows that has. 0: the row fills up a step."""

    @classmethod
    def of(cls, memory: NDArray[np.uint8]) -> Self:
        """What lies in memory."""
        rows = len(memory) // ROW_BYTES
        numbers = memory[16 * rows :].view(np.int32).reshape(NUMBERS, rows)
        return cls(memory[: 8 * rows].view(np.int64), memory[8 * rows : 16 * rows].view(np.float64), numbers, *numbers)


class Feed(NamedTuple):
    """The same on the device, as addresses."""

    rows: int
    ids: int

    @property
    def costs(self) -> int:
        return self.ids + 8 * self.rows

    @property
    def numbers(self) -> int:
        return self.ids + 16 * self.rows

    @property
    def positions(self) -> int:
        return self.numbers

    @property
    def source_last(self) -> int:
        return self._number(1)

    @property
    def slots(self) -> int:
        return self._number(2)

    @property
    def source_slots(self) -> int:
        return self._number(3)

    def _number(self, index: int) -> int:
        return self.numbers + 4 * index * self.rows
