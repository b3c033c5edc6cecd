"""Memory for the cache tensors of the native graphs, as their operators lay it out (kernels/README.md)."""

import numpy as np
from numpy.typing import NDArray

from engine.host.cache_memory import CacheMemory, Kept

KEY_BLOCK = 16
"""Positions whose keys lie together, one number of all of them after another."""


class SlotMemory(CacheMemory):
    """Positions of a slot lie one after another, each with all its heads, so that what a row has is one piece."""

    def _copy(self, old: NDArray[np.floating], kept: Kept, positions: int) -> None:
        tensors, rows, heads, _, head_dim = old.shape
        ours, theirs = (array.reshape(tensors, rows, -1) for array in (self.array, old))
        numbers = positions * heads * head_dim
        ours[:, kept, :numbers] = theirs[:, kept, :numbers]


def by_head(keys: NDArray[np.float32]) -> NDArray[np.float32]:
    """Keys as they lie, [rows, capacity / 16, heads, head_dim, 16] -> [rows, heads, capacity, head_dim]."""
    rows, heads, capacity, head_dim = keys.shape
    blocks = keys.reshape(rows, capacity // KEY_BLOCK, heads, head_dim, KEY_BLOCK)
    return blocks.transpose(0, 2, 1, 4, 3).reshape(keys.shape)
