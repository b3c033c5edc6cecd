"""Memory of the native graphs: it grows and shrinks with what its rows hold, and keys are found in it by heads."""

import numpy as np
from numpy.typing import NDArray

from engine.native.slot_memory import SlotMemory, by_head
from kernels.library import Buffers, Library
from models.package.declared.tensors import CacheTensor

HEADS, HEAD_DIM, TOKENS = 3, 8, 21
TENSORS = [
    CacheTensor(past=name, present=name, precision="fp32", axes=("rows", HEADS, "source", HEAD_DIM), owner="source")
    for name in ("keys", "values")
]


def stored(library: Library, memory: SlotMemory, slot: int) -> NDArray[np.float32]:
    """Puts a sentence into a slot. Returns its keys and values [2, heads, tokens, head_dim]."""
    cross = np.random.default_rng(slot).standard_normal((TOKENS, 2 * HEADS * HEAD_DIM)).astype(np.float32)
    library.store_source(cross, Buffers([memory.array]), slot)
    return cross.reshape(TOKENS, 2, HEADS, HEAD_DIM).transpose(1, 2, 0, 3)


def keys_and_values(memory: SlotMemory, slot: int) -> NDArray[np.floating]:
    keys, values = memory.array[:, slot : slot + 1]
    by_position = values.reshape(memory.capacity, HEADS, HEAD_DIM).swapaxes(0, 1)
    return np.stack([by_head(keys)[0], by_position])[:, :, :TOKENS]


def test_what_slots_hold_stays_when_their_memory_grows_and_shrinks(library: Library) -> None:
    memory = SlotMemory(TENSORS, 4, 512)
    held = {slot: stored(library, memory, slot) for slot in (3, 1)}
    kept = np.array([3, 1])
    for needed, capacity in ((33, 64), (300, 320), (TOKENS, 64)):
        assert memory.fit(needed, kept)
        assert memory.capacity == capacity
        for slot, expected in held.items():
            np.testing.assert_array_equal(keys_and_values(memory, slot), expected)
