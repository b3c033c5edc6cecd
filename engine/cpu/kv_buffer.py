"""Memory for the keys and values of a running batch."""

import numpy as np
from numpy.typing import NDArray

STEP = 32
"""Capacities are multiples of this: every change copies the live rows, and most sentences fit into one or two steps."""


class KVBuffer:
    """Keys and values of every row [tensors, rows, heads, capacity, head_dim].

    The capacity follows the live rows. With room for the longest sentence there can be, rows would lie so far apart
    that a decoder step spends most of its time on cache and TLB misses
    (docs/decisions/0005-cache-capacity-follows-the-rows.md).
    """

    def __init__(
        self, tensors: int, rows: int, heads: int, head_dim: int, longest: int, dtype: type[np.floating] = np.float32
    ) -> None:
        """`longest`: the most positions a row can need."""
        self._shape = tensors, rows, heads, head_dim
        self._dtype = dtype
        self._longest = longest
        self.array = self._allocate(STEP)

    @property
    def capacity(self) -> int:
        """Positions there is room for."""
        return int(self.array.shape[3])

    def fit(self, needed: int, live: int) -> bool:
        """Makes room for `needed` positions, or gives up room that is far too much. Keeps what the `live` rows hold.

        True if the array is another one now. Raises ValueError if a row can never have so many positions.
        """
        if needed > self._longest:
            raise ValueError(f"a row needs {needed} positions; the cache was opened for {self._longest}")
        enough = min(-(-needed // STEP) * STEP, self._longest)
        if enough <= self.capacity < 4 * enough:
            return False
        # What shrinks keeps some room, so that rows which only began do not make it grow again at once.
        old, self.array = self.array, self._allocate(enough if self.capacity < needed else 2 * enough)
        kept = min(old.shape[3], self.capacity)
        self.array[:, :live, :, :kept] = old[:, :live, :, :kept]
        return True

    def copy(self, source: int, target: int, length: int) -> int:
        """Makes row `target` hold the first `length` positions of row `source`. Returns the bytes of them."""
        positions = self.array[:, source, :, :length]
        self.array[:, target, :, :length] = positions
        return positions.nbytes

    def _allocate(self, capacity: int) -> NDArray[np.floating]:
        tensors, rows, heads, head_dim = self._shape
        # Takes no memory until a row is used.
        return np.zeros((tensors, rows, heads, min(capacity, self._longest), head_dim), self._dtype)
