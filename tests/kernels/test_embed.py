"""Embed and SimpleRecurrence against numpy."""

import numpy as np
import pytest

from kernels.library import Library
from tests.kernels.node import Array, Node, Ports


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize("width", [64, 40, 7])
def test_embed(library: Library, kind: type[np.generic], width: int) -> None:
    rng = np.random.default_rng(0)
    table = (rng.standard_normal((50, width)) * (30 if kind is np.int8 else 1)).astype(kind)
    scales, places = rng.uniform(0.5, 2, 50).astype(np.float32), rng.standard_normal((20, width)).astype(np.float32)
    inputs: Ports = [("ids", np.int64), ("positions", np.int32), ("table", kind)]
    inputs += [("table_scales", np.float32 if kind is np.int8 else None), ("position_table", np.float32)]
    constants: dict[str, Array] = {"table": table, "position_table": places}
    if kind is np.int8:
        constants["table_scales"] = scales
    node = Node(library, "Embed", inputs, constants, [("x", np.float32)], scale=8.0)
    ids, positions = rng.integers(0, 50, 9), rng.integers(0, 20, 9).astype(np.int32)
    rows = table[ids].astype(np.float32) * (scales[ids, None] if kind is np.int8 else 1)
    np.testing.assert_allclose(
        node(ids=ids, positions=positions)[0], rows * 8 + places[positions], rtol=1e-6, atol=1e-5
    )


def test_tokens_without_positions(library: Library) -> None:
    table = np.random.default_rng(0).standard_normal((50, 24)).astype(np.float32)
    inputs: Ports = [("ids", np.int64), ("positions", np.int32), ("table", np.float32)]
    node = Node(library, "Embed", inputs, {"table": table}, [("x", np.float32)], scale=2.0)
    ids = np.array([3, 49, 0])
    np.testing.assert_array_equal(node(ids=ids, positions=np.array([0, 1, 1 << 30], np.int32))[0], table[ids] * 2)


@pytest.mark.parametrize("width", [64, 20])
def test_recurrence(library: Library, width: int) -> None:
    rng = np.random.default_rng(0)
    gates, state = (
        rng.standard_normal((3, 2 * width)).astype(np.float32),
        rng.standard_normal((5, width)).astype(np.float32),
    )
    slots, out, before = np.array([4, 0, 2], np.int32), np.zeros((3, width), np.float32), state.copy()
    inputs: Ports = [("gates", np.float32), ("state", np.float32), ("slots", np.int32)]
    node = Node(library, "SimpleRecurrence", inputs, {}, [("out", np.float32), ("new_state", np.float32)])
    node.in_place({"gates": gates, "state": state, "slots": slots}, {"out": out, "new_state": state})
    forget = 1 / (1 + np.exp(-gates[:, :width]))
    expected = before.copy()
    expected[slots] = forget * before[slots] + (1 - forget) * gates[:, width:]
    np.testing.assert_allclose(state, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(out, np.maximum(state[slots], 0))
