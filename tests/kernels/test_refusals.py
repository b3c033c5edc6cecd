"""What cannot be computed is refused, with both numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels.library import Library
from tests.kernels.node import Array, Node, Ports
from tests.kernels.test_attention import HEADS, Caches, self_attention, source_attention, step
from tests.kernels.test_best_tokens import OutputLayer, hidden, ranks
from tests.kernels.test_quant_linear import Layer, Wide, rows

LINEAR: Ports = [("x", np.float32), ("weight", np.int8), ("scales", np.float32), ("bias", np.float32)]


def made(library: Library, constants: dict[str, Array], **attributes: Any) -> Node:
    return Node(library, "QuantLinear", LINEAR, constants, [("y", np.float32)], **attributes)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"scale": -1.0}, "scale is -1"),
        ({"zero_point": 300}, r"zero_point is 300, not within 0\.\.255"),
        ({"zero_point": 5}, "zero_point is 5; with a scale for each row it is 0 or 128"),
        ({"bits": 4}, "bits is 4, not 8 or 16"),
        ({"activation": "tanh"}, 'activation is "tanh", not none, relu, gelu, gelu_tanh or swish'),
    ],
)
def test_attributes(library: Library, attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        Layer(8, 8).node(library, **({"scale": 0.0, "zero_point": 128} | attributes))


def test_constants(library: Library) -> None:
    layer = Layer(8, 16)
    with pytest.raises(Exception, match=r"scales has the shape \[7\], not \[8\]"):
        made(library, layer.constants | {"scales": layer.scales[:7]})
    with pytest.raises(Exception, match=r"input 3 \(bias\) must be a constant"):
        made(library, {name: value for name, value in layer.constants.items() if name != "bias"})
    layer.weight[3, 5] = -128
    with pytest.raises(Exception, match="weight of output 3, input 5 is -128"):
        made(library, layer.constants)


@pytest.mark.parametrize("operator", ["QuantLinear", "BestTokens"])
def test_weights_of_no_inputs(library: Library, operator: str) -> None:
    scales = np.ones(8, np.float32)
    constants: dict[str, Array] = {"weight": np.zeros((8, 0), np.int8), "scales": scales, "bias": scales}
    inputs: Ports = [("x", np.float32), ("ranks", np.int64), *LINEAR[1:]]
    with pytest.raises(Exception, match="weight has 0 inputs; it must have at least 1"):
        if operator == "QuantLinear":
            made(library, constants)
        else:
            Node(library, operator, inputs, constants, [("ids", np.int64), ("log_probs", np.float32)])


def test_weights_whose_products_do_not_fit_32_bits(library: Library) -> None:
    weight, one = np.full((1, 66312), 127, np.int8), np.ones(1, np.float32)
    made(library, {"weight": weight[:, 1:], "scales": one, "bias": one}, zero_point=0)
    with pytest.raises(Exception, match="weight of output 0 has sizes that add up to 8421624; of s8 it is 8421504 at"):
        made(library, {"weight": weight, "scales": one, "bias": one}, zero_point=0)


def test_no_rows_are_none(library: Library) -> None:
    layer = Layer(8, 16)
    assert layer.node(library)(x=rows(0, 16))[0].shape == (0, 8)
    ids, scores = OutputLayer("s8").node(library)(x=hidden(2)[:0], ranks=ranks(4))[:2]
    assert ids.shape == scores.shape == (0, 4)
    inputs: Ports = [("qkv", np.float32), ("lengths", np.int32)]
    node = Node(library, "PackedAttention", inputs, {}, [("attended", np.float32)], heads=1)
    assert node(qkv=np.zeros((0, 24), np.float32), lengths=np.zeros(0, np.int32))[0].shape == (0, 8)


def test_constants_of_16_bits(library: Library) -> None:
    layer = Wide(8, 16)
    with pytest.raises(
        Exception, match="scale, zero_point and bits are 0, 128 and 8; of a weight of s16 they are 0, 0"
    ):
        layer.node(library, zero_point=128, bits=8)
    layer.weight[3] = 20000
    with pytest.raises(Exception, match="weight of output 3 has the norm 80000; of s16 it is 46340 at most"):
        layer.node(library)


def test_shapes(library: Library) -> None:
    with pytest.raises(Exception, match=r"x has the shape \[3, 15\], not \[any, 16\]"):
        Layer(8, 16).node(library, scale=0.0, zero_point=128)(x=rows(3, 15))


@pytest.mark.parametrize(
    ("positions", "slots", "said"),
    [
        ([0, 48], [0, 1], "row 1: position 48 with a capacity of 48"),
        ([-1, 0], [0, 1], "row 0: position -1 with a capacity of 48"),
        ([0, 0], [0, 7], "row 1: slot 7 of 7"),
        ([0, 0], [-2, 0], "row 0: slot -2 of 7"),
        ([0], [0, 1], r"position has the shape \[1\], not \[2\]"),
    ],
)
def test_places(library: Library, positions: list[int], slots: list[int], said: str) -> None:
    caches, qkv = Caches(16, np.float32), np.zeros((2, 3 * HEADS * 16), np.float32)
    with pytest.raises(Exception, match=said):
        step(self_attention(library, np.float32), caches, qkv, positions, slots)
    places = {"positions": np.array(positions, np.int32), "slots": np.array(slots, np.int32)}
    if positions != [0, 48] and positions != [0, 0]:
        with pytest.raises(Exception, match=r"row 0: length|length has the shape"):
            query = np.zeros((2, HEADS * 16), np.float32)
            source_attention(library, np.float32)(query=query, keys=caches.blocks, values=caches.values, **places)


def test_a_cache_that_is_not_bound_in_place(library: Library) -> None:
    caches, node = Caches(16, np.float32), self_attention(library, np.float32)
    places = {"positions": np.zeros(1, np.int32), "slots": np.zeros(1, np.int32)}
    with pytest.raises(Exception, match="keys must be bound in place"):
        node(qkv=np.zeros((1, 3 * HEADS * 16), np.float32), keys=caches.blocks, values=caches.values, **places)


def capacity(library: Library) -> None:
    keys = np.zeros((1, 1, 24, 8), np.float32)
    one = np.ones(1, np.int32)
    source_attention(library, np.float32)(
        query=np.zeros((1, 8), np.float32), keys=keys, values=keys, positions=one, slots=one * 0
    )


def head_size(library: Library) -> None:
    keys = np.zeros((1, 1, 16, 12), np.float32)
    one = np.ones(1, np.int32)
    source_attention(library, np.float32)(
        query=np.zeros((1, 12), np.float32), keys=keys, values=keys, positions=one, slots=one * 0
    )


def many(library: Library) -> None:
    OutputLayer("s8").node(library)(x=hidden(2), ranks=ranks(65))


def unknown(library: Library) -> None:
    allowed = np.array([[3, -1], [7, 5003]], np.int32)
    OutputLayer("s8").node(library, allowed=True)(x=hidden(2), ranks=ranks(1), allowed=allowed)


def lengths(library: Library) -> None:
    inputs: Ports = [("qkv", np.float32), ("lengths", np.int32)]
    node = Node(library, "PackedAttention", inputs, {}, [("attended", np.float32)], heads=1)
    node(qkv=np.zeros((5, 24), np.float32), lengths=np.array([3, 3], np.int32))


def token(library: Library) -> None:
    table = np.zeros((9, 8), np.float32)
    inputs: Ports = [
        ("ids", np.int64),
        ("positions", np.int32),
        ("table", np.float32),
        ("", None),
        ("places", np.float32),
    ]
    node = Node(library, "Embed", inputs, {"table": table, "places": table}, [("x", np.float32)])
    node(ids=np.array([2, 9]), positions=np.zeros(2, np.int32))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (capacity, "the capacity is 24, which is no multiple of 16"),
        (head_size, "head_dim is 12, which is no multiple of 8"),
        (many, "65 tokens are asked for; 1 to 64 can be found"),
        (unknown, "row 1: allowed token 5003 of 5003"),
        (lengths, "lengths add up to 6, and qkv has 5 tokens"),
        (token, "row 1: token 9 of a table of 9"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_calls(library: Library, call: Callable[[Library], None], said: str) -> None:
    with pytest.raises(Exception, match=said):
        call(library)
