"""Where the rows of a running batch are kept, moved by the built library."""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.library import Buffers, Library


class _Rows(ctypes.Structure):
    """The rows, as src/cache.h declares them."""

    _fields_ = (
        ("room", ctypes.c_int64),
        ("live", ctypes.c_int64),
        ("positions", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("source_slots", ctypes.c_void_p),
        ("source_lengths", ctypes.c_void_p),
    )


class Taken(NamedTuple):
    """What it took to make rows continue others, as src/cache.h declares it."""

    rows: int
    """That were copied: each was not the first child of its parent."""
    copied_bytes: int
    furthest: int
    """The most positions of any row."""


class RowTable:
    """Numbers of each row, in arrays that stay where they are."""

    def __init__(
        self,
        library: Library,
        positions: NDArray[np.int32],
        slots: NDArray[np.int32],
        source_slots: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
    ) -> None:
        """Those of rows that are live come first.

        Args:
            library: moves them.
            positions: how many places of its slot each has filled [rows].
            slots: a permutation of all [rows].
            source_slots: several rows may have the same [rows].
            source_lengths: tokens in those [rows].
        """
        self._library, self._arrays = library, (positions, slots, source_slots, source_lengths)
        if any(array.dtype != np.int32 or array.shape != (len(slots),) for array in self._arrays):
            raise ValueError(f"numbers of rows are int32, of {len(slots)} rows each")
        self._rows = _Rows(len(slots), 0, *(array.ctypes.data for array in self._arrays))
        self._parents, self._done = np.zeros(len(slots), np.int64), (ctypes.c_int64 * 3)()
        # To ask where they are takes as long as to move the rows.
        self.address = ctypes.addressof(self._rows)
        self._at = self._parents.ctypes.data, ctypes.addressof(self._done)

    def hold(self, live: int) -> None:
        """So many are live."""
        self._rows.live = live

    def take(self, live: int, parents: Sequence[int] | NDArray[np.integer], buffers: Buffers) -> Taken:
        """Makes row i continue old row parents[i], of the live ones.

        The first child of a row keeps its slot. Every other gets a free one, with a copy of the filled places in all
        buffers, in whole blocks of 16.

        Raises:
            ValueError: there is no such row, no room for so many, or a position is beyond the capacity.
        """
        count, room = len(parents), len(self._parents)
        if count > room:
            raise ValueError(f"{count} rows, where there is room for {room}")
        self._rows.live, self._parents[:count] = live, parents
        chosen, done = self._at
        self._library.take_rows(self.address, chosen, count, buffers, done)
        return Taken(*self._done)
