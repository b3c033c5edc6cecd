"""Memory for the cache tensors of a running batch on the host."""

from collections.abc import Iterator, Sequence
from math import prod
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from models.package.declared.precision import Precision
from models.package.declared.tensors import CacheTensor

STEP = 32
"""Capacities are multiples of this: every change copies the live rows, and most sentences fit into one or two steps."""
DTYPES: dict[Precision, type[np.floating]] = {"fp32": np.float32, "fp16": np.float16}

GROWING = Lock()
"""Held while memory is copied into larger memory: it is there twice then, and only one worker's may be at a time."""

Kept = slice | NDArray[np.intp]


class CacheMemory:
    """Tensors that are alike, of every row [tensors, rows, heads, capacity, slot].

    The capacity follows the live rows. With room for the longest sentence there can be, rows would lie so far apart
    that a decoder step spends most of its time on cache and TLB misses
    (docs/decisions/0005-cache-capacity-follows-the-rows.md). That of states is 1.
    """

    def __init__(self, tensors: Sequence[CacheTensor], rows: int, longest: int) -> None:
        """`longest`: the most positions a row can need."""
        self.tensors = tensors
        first = tensors[0]
        self.owner, self.grows = first.owner, first.grows
        self._shape = len(tensors), rows, first.heads, first.head_dim
        self._dtype = DTYPES[first.precision]
        self._longest = longest if self.grows else 1
        self.array = self._allocate(STEP)

    @property
    def capacity(self) -> int:
        """Positions there is room for."""
        return int(self.array.shape[3])

    @property
    def fitting(self) -> range:
        """The numbers of positions for which there is room, and not far too much."""
        return range(self.capacity // (4 * STEP) * STEP + 1, self.capacity + 1)

    def fits(self, needed: int) -> bool:
        """Whether there is room for `needed` positions, and not far too much.

        Raises ValueError if a row can never have so many.
        """
        if needed > self._longest:
            raise ValueError(f"a row needs {needed} positions; the cache was opened for {self._longest}")
        return needed in self.fitting

    def fit(self, needed: int, kept: Kept) -> bool:
        """Makes room for `needed` positions, or gives up room that is far too much. Keeps what these rows hold.

        True if the array is another one now: nobody should hold the old one meanwhile. Raises ValueError if a row can
        never have so many positions.
        """
        if self.fits(needed):
            return False
        enough = self._enough(needed)
        with GROWING:
            # What shrinks keeps some room, so that rows which only began do not make it grow again at once.
            old, self.array = self.array, self._allocate(enough if self.capacity < needed else 2 * enough)
            self._copy(old, kept, min(old.shape[3], self.capacity))
            del old
        return True

    def bound(self, rows: int) -> Iterator[tuple[CacheTensor, NDArray[np.floating]]]:
        """Every tensor with the memory of its first rows, which is both its past and its present."""
        for tensor, array in zip(self.tensors, self.array, strict=True):
            yield tensor, array[:rows].reshape(tensor.shape(rows, self.capacity))

    def _copy(self, old: NDArray[np.floating], kept: Kept, positions: int) -> None:
        """Takes over so many positions of these rows."""
        self.array[:, kept, :, :positions] = old[:, kept, :, :positions]

    def _enough(self, needed: int) -> int:
        return min(-(-needed // STEP) * STEP, self._longest)

    def _allocate(self, capacity: int) -> NDArray[np.floating]:
        tensors, rows, heads, slot = self._shape
        shape = tensors, rows, heads, min(capacity, self._longest), slot
        # Zeros that take no memory until a row is used, and none afterwards. NumPy's own would be on huge pages, which
        # few rows take as many of as all.
        memory = mmap(-1, prod(shape) * np.dtype(self._dtype).itemsize, MAP_PRIVATE | MAP_ANONYMOUS)
        return np.frombuffer(memory, self._dtype).reshape(shape)
