"""SelfAttention, SourceAttention and PackedAttention against PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernels.library import Library
from tests.kernels.node import Array, Node, Ports

Floats = NDArray[np.float32]
HEADS, CAPACITY, SLOTS = 3, 48, 7
PLACES: Ports = [("positions", np.int32), ("slots", np.int32)]


def to_blocks(keys: Array) -> Array:
    """[slots, heads, capacity, head_dim] to the same memory with all heads of 16 positions after another."""
    blocks = keys.reshape(*keys.shape[:2], -1, 16, keys.shape[3]).transpose(0, 2, 1, 4, 3)
    return np.ascontiguousarray(blocks).reshape(keys.shape)


def by_position(values: Array) -> Array:
    """[slots, heads, capacity, head_dim] to the same memory with all heads of a position after another."""
    return np.ascontiguousarray(values.swapaxes(1, 2)).reshape(values.shape)


def attended(query: Floats, keys: Floats, values: Floats, scale: float, bias: Floats | None = None) -> Floats:
    """One row: query [heads, head_dim], keys and values [heads, length, head_dim], bias [heads, length]."""
    mask = None if bias is None else torch.from_numpy(bias[:, None])
    q, k, v = (torch.from_numpy(part.astype(np.float32)) for part in (query[:, None], keys, values))
    result: Floats = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).numpy()
    return result.ravel()


class Caches:
    """Random keys and values, as they are and as the kernels keep them."""

    def __init__(self, head_dim: int, dtype: type[np.floating]) -> None:
        rng = np.random.default_rng(head_dim)
        shape = SLOTS, HEADS, CAPACITY, head_dim
        self.keys, self.values = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
        self.blocks, self.positions = to_blocks(self.keys), by_position(self.values)


def self_attention(library: Library, dtype: type[np.floating], bias: bool = False, **attributes: Any) -> Node:
    inputs: Ports = [("qkv", np.float32), ("keys", dtype), ("values", dtype), *PLACES]
    inputs += [("bias", np.float32)] * bias
    outputs: Ports = [("attended", np.float32), ("new_keys", dtype), ("new_values", dtype)]
    return Node(library, "SelfAttention", inputs, {}, outputs, **attributes)


def step(node: Node, caches: Caches, qkv: Floats, positions: list[int], slots: list[int], **more: Floats) -> Floats:
    out = np.zeros((len(qkv), qkv.shape[1] // 3), np.float32)
    places = {"positions": np.array(positions, np.int32), "slots": np.array(slots, np.int32)}
    node.in_place(
        {"qkv": qkv, "keys": caches.blocks, "values": caches.positions} | places | more,
        {"attended": out, "new_keys": caches.blocks, "new_values": caches.positions},
    )
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("head_dim", [8, 16, 24, 32, 64, 80, 128])
def test_self_attention(library: Library, head_dim: int, dtype: type[np.floating]) -> None:
    caches, node = Caches(head_dim, dtype), self_attention(library, dtype)
    positions, slots = [0, 15, 16, 47, 30], [3, 0, 6, 2, 5]
    qkv = np.random.default_rng(1).standard_normal((5, 3 * HEADS * head_dim)).astype(np.float32)
    keys, values = caches.keys.copy(), caches.values.copy()
    out = step(node, caches, qkv, positions, slots)
    for row, position, slot, given in zip(out, positions, slots, qkv, strict=True):
        query, key, value = given.reshape(3, HEADS, head_dim)
        keys[slot, :, position], values[slot, :, position] = key, value
        seen = slice(position + 1)
        expected = attended(query, keys[slot, :, seen], values[slot, :, seen], head_dim**-0.5)
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=2e-6)
    np.testing.assert_array_equal(caches.blocks, to_blocks(keys))
    np.testing.assert_array_equal(caches.positions, by_position(values))


def test_bias_by_distance_and_scale(library: Library) -> None:
    caches, node = Caches(32, np.float32), self_attention(library, np.float32, bias=True, scale=0.3)
    bias = np.random.default_rng(2).standard_normal((HEADS, 9)).astype(np.float32)
    qkv = np.random.default_rng(1).standard_normal((1, 3 * HEADS * 32)).astype(np.float32)
    out = step(node, caches, qkv, [20], [4], bias=bias)
    query, key, value = qkv.reshape(3, HEADS, 32)
    keys, values = (
        np.concatenate([past[4, :, :20], new[:, None]], 1) for past, new in ((caches.keys, key), (caches.values, value))
    )
    distances = 8 - np.minimum(20 - np.arange(21), 8)
    np.testing.assert_allclose(out[0], attended(query, keys, values, 0.3, bias[:, distances]), rtol=1e-5, atol=2e-6)


def source_attention(library: Library, dtype: type[np.floating]) -> Node:
    inputs: Ports = [("query", np.float32), ("keys", dtype), ("values", dtype), *PLACES]
    return Node(library, "SourceAttention", inputs, {}, [("attended", np.float32)])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("head_dim", [24, 32, 64, 128])
def test_source_attention_of_beams_and_of_single_rows(
    library: Library, head_dim: int, dtype: type[np.floating]
) -> None:
    caches, node = Caches(head_dim, dtype), source_attention(library, dtype)
    slots, lengths = [2, 2, 2, 5, 0, 0, *[4] * 9], [31, 31, 31, 48, 1, 1, *[17] * 9]
    query = np.random.default_rng(1).standard_normal((len(slots), HEADS * head_dim)).astype(np.float32)
    given = {"keys": caches.blocks, "values": caches.positions}
    out = node(query=query, positions=np.array(lengths, np.int32), slots=np.array(slots, np.int32), **given)[0]
    for r, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
        keys, values = caches.keys[slot, :, :length], caches.values[slot, :, :length]
        expected = attended(query[r].reshape(HEADS, head_dim), keys, values, head_dim**-0.5)
        np.testing.assert_allclose(out[r], expected, rtol=1e-5, atol=2e-6)
        alone = {"positions": np.array([length], np.int32), "slots": np.array([slot], np.int32)}
        np.testing.assert_array_equal(node(query=query[r : r + 1], **alone, **given)[0][0], out[r])


def test_what_lies_beyond_the_length_does_not_matter(library: Library) -> None:
    caches, node = Caches(32, np.float32), source_attention(library, np.float32)
    query = np.ones((1, HEADS * 32), np.float32)
    places = {"positions": np.array([19], np.int32), "slots": np.array([1], np.int32)}
    expected = node(query=query, keys=caches.blocks, values=caches.positions, **places)[0]
    keys, values = caches.keys.copy(), caches.values.copy()
    keys[1, :, 19:], values[1, :, 19:] = np.nan, np.inf
    given = {"keys": to_blocks(keys), "values": by_position(values)}
    np.testing.assert_array_equal(node(query=query, **given, **places)[0], expected)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("head_dim", [8, 32, 40, 64])
def test_packed_sentences(library: Library, head_dim: int, bias: bool) -> None:
    rng, lengths = np.random.default_rng(1), [5, 1, 33, 16, 2]
    qkv = rng.standard_normal((sum(lengths), 3 * HEADS * head_dim)).astype(np.float32)
    by_distance = rng.standard_normal((HEADS, 23)).astype(np.float32)
    inputs: Ports = [("qkv", np.float32), ("lengths", np.int32), *[("bias", np.float32)] * bias]
    node = Node(library, "PackedAttention", inputs, {}, [("attended", np.float32)], heads=HEADS)
    more = {"bias": by_distance} if bias else {}
    out = node(qkv=qkv, lengths=np.array(lengths, np.int32), **more)[0]
    first = 0
    for length in lengths:
        part = qkv[first : first + length]
        query, keys, values = part.reshape(length, 3, HEADS, head_dim).transpose(1, 2, 0, 3)
        for t in range(length):
            away = by_distance[:, np.clip(np.arange(length) - t, -11, 11) + 11] if bias else None
            expected = attended(query[:, t], keys, values, head_dim**-0.5, away)
            np.testing.assert_allclose(out[first + t], expected, rtol=1e-5, atol=2e-6)
        alone = node(qkv=part, lengths=np.array([length], np.int32), **more)[0]
        np.testing.assert_array_equal(alone, out[first : first + length])
        first += length


def test_a_row_that_is_not_finite_stays_so_and_alone(library: Library) -> None:
    caches, node = Caches(32, np.float32), source_attention(library, np.float32)
    query = np.random.default_rng(1).standard_normal((4, HEADS * 32)).astype(np.float32)
    places = {"positions": np.full(4, 20, np.int32), "slots": np.full(4, 3, np.int32)}
    good = node(query=query, keys=caches.blocks, values=caches.positions, **places)[0]
    query[1] = np.nan
    out = node(query=query, keys=caches.blocks, values=caches.positions, **places)[0]
    assert np.isnan(out[1]).all()
    np.testing.assert_array_equal(np.delete(out, 1, 0), np.delete(good, 1, 0))
