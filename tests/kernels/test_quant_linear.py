"""QuantLinear, QuantLinearU8, ResidualNorm and Gate against numpy and PyTorch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernels.library import Library
from tests.kernels.node import Array, Node, Ports

Floats = NDArray[np.float32]
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    "swish": torch.nn.functional.silu,
}


class Layer:
    """A random linear layer, and what numpy makes of it."""

    def __init__(self, outputs: int, inputs: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.weight = rng.integers(-127, 128, (outputs, inputs)).astype(np.int8)
        self.scales = rng.uniform(0.5, 1.5, outputs).astype(np.float32) * 0.01
        self.bias = rng.standard_normal(outputs).astype(np.float32)
        self.gamma, self.beta = (rng.standard_normal(outputs).astype(np.float32) for _ in range(2))

    @property
    def constants(self) -> dict[str, Array]:
        return {"weight": self.weight, "scales": self.scales, "bias": self.bias}

    def node(self, library: Library, **attributes: Any) -> Node:
        inputs: Ports = [("x", np.float32), ("weight", np.int8), ("scales", np.float32), ("bias", np.float32)]
        return Node(library, "QuantLinear", inputs, self.constants, [("y", np.float32)], **attributes)

    def product(self, q: Array, zero_point: int, scale: Floats | float) -> Floats:
        """Of u8 values: exact until the scales."""
        sums = (q.astype(np.int64) - zero_point) @ self.weight.astype(np.int64).T
        return (sums * (np.asarray(scale, np.float64) * self.scales) + self.bias).astype(np.float32)


class Wide:
    """A random linear layer of 16 bits, whose weights have the largest norms that there may be."""

    def __init__(self, outputs: int, inputs: int) -> None:
        rng = np.random.default_rng(0)
        weight = rng.standard_normal((outputs, inputs))
        norms = np.linalg.norm(weight, axis=1, keepdims=True)
        self.weight = (weight / norms * np.minimum(46340, 32767 * norms / np.abs(weight).max(1, keepdims=True))).astype(
            np.int16
        )
        self.scales = rng.uniform(0.5, 1.5, outputs).astype(np.float32) * 1e-4
        self.bias = rng.standard_normal(outputs).astype(np.float32)

    def node(self, library: Library, **attributes: Any) -> Node:
        inputs: Ports = [("x", np.float32), ("weight", np.int16), ("scales", np.float32), ("bias", np.float32)]
        constants: dict[str, Array] = {"weight": self.weight, "scales": self.scales, "bias": self.bias}
        given = {"scale": 0.0, "zero_point": 0, "bits": 16} | attributes
        return Node(library, "QuantLinear", inputs, constants, [("y", np.float32)], **given)

    def product(self, x: Floats) -> NDArray[np.float64]:
        weight: NDArray[np.float64] = self.weight * self.scales[:, None].astype(np.float64)
        return x.astype(np.float64) @ weight.T + self.bias


def quantized(x: Floats, scale: Floats | float, zero_point: int) -> Array:
    inverse = np.float32(1) / np.asarray(scale, np.float32)
    result: Array = np.clip(np.rint(x * inverse) + zero_point, 0, 255).astype(np.int64)
    return result


def rows(count: int, width: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


SHAPES = [(1, 64, 32), (2, 96, 64), (5, 33, 40), (7, 256, 256), (33, 130, 12), (3, 1, 5), (300, 70, 1024)]


@pytest.mark.parametrize(("count", "outputs", "inputs"), SHAPES)
@pytest.mark.parametrize(("scale", "zero_point"), [(0.02, 128), (0.013, 0), (0.011, 77), (0.0, 128), (0.0, 0)])
def test_products_are_those_of_whole_numbers(
    library: Library, count: int, outputs: int, inputs: int, scale: float, zero_point: int
) -> None:
    layer, x = Layer(outputs, inputs), rows(count, inputs)
    if zero_point == 0:
        x = np.abs(x)
    each = scale or np.abs(x).max(1, keepdims=True) / (255 if zero_point == 0 else 127)
    y = layer.node(library, scale=scale, zero_point=zero_point)(x=x)[0]
    expected = layer.product(quantized(x, each, zero_point), zero_point, each)
    np.testing.assert_allclose(y, expected, rtol=2e-6, atol=2e-5)


def test_the_largest_values_do_not_saturate_in_between(library: Library) -> None:
    layer = Layer(64, 512)
    layer.weight[:] = np.resize([127, 127, -127, -127, 127, -127], (64, 512))
    layer.weight[0], layer.weight[1], layer.bias[:] = 127, -127, 0
    layer.scales[:] = 1
    node = layer.node(library, scale=1.0, zero_point=128)
    x = np.stack([np.full(512, v, np.float32) for v in (127, -128, 0)] + [np.resize([127, -128], 512)]).astype(
        np.float32
    )
    np.testing.assert_array_equal(node(x=x)[0], layer.product(quantized(x, 1.0, 128), 128, 1.0))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(library: Library, activation: str) -> None:
    layer, x = Layer(96, 64), rows(9, 64) * 3
    plain = layer.node(library, scale=0.0, zero_point=128)(x=x)[0]
    y = layer.node(library, scale=0.0, zero_point=128, activation=activation)(x=x)[0]
    expected = ACTIVATIONS[activation](torch.from_numpy(plain)).numpy()
    np.testing.assert_allclose(y, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("width", [64, 50])
def test_residual_and_norm(library: Library, norm: str, width: int) -> None:
    layer, x, residual = Layer(width, 64), rows(9, 64), rows(9, width, 2)
    plain = torch.from_numpy(layer.node(library, scale=0.0, zero_point=128)(x=x)[0] + residual)
    inputs: Ports = [("x", np.float32), ("weight", np.int8), ("scales", np.float32), ("bias", np.float32)]
    inputs += [("residual", np.float32), ("gamma", np.float32)] + [("beta", np.float32)] * (norm == "layer")
    constants = layer.constants | {"gamma": layer.gamma} | ({"beta": layer.beta} if norm == "layer" else {})
    attributes = {"scale": 0.0, "zero_point": 128, "norm": norm, "epsilon": 1e-4}
    node = Node(library, "QuantLinear", inputs, constants, [("y", np.float32)], **attributes)
    gamma, beta = torch.from_numpy(layer.gamma), torch.from_numpy(layer.beta)
    expected = (
        torch.nn.functional.layer_norm(plain, (width,), gamma, beta, 1e-4)
        if norm == "layer"
        else torch.nn.functional.rms_norm(plain, (width,), gamma, 1e-4)
    )
    np.testing.assert_allclose(node(x=x, residual=residual)[0], expected.numpy(), rtol=1e-5, atol=1e-5)


def test_residual_norm_alone(library: Library) -> None:
    layer, x, residual = Layer(50, 8), rows(5, 50), rows(5, 50, 2)
    inputs: Ports = [("x", np.float32), ("residual", np.float32), ("gamma", np.float32), ("beta", np.float32)]
    constants = {"gamma": layer.gamma, "beta": layer.beta}
    y = Node(library, "ResidualNorm", inputs, constants, [("y", np.float32)], epsilon=1e-5)(x=x, residual=residual)[0]
    expected = torch.nn.functional.layer_norm(
        torch.from_numpy(x + residual), (50,), torch.from_numpy(layer.gamma), torch.from_numpy(layer.beta)
    )
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-5, atol=1e-5)


def test_a_norm_alone(library: Library) -> None:
    layer, x = Layer(50, 8), rows(5, 50)
    inputs: Ports = [("x", np.float32), ("residual", None), ("gamma", np.float32)]
    node = Node(library, "ResidualNorm", inputs, {"gamma": layer.gamma}, [("y", np.float32)], norm="rms", epsilon=1e-5)
    expected = torch.nn.functional.rms_norm(torch.from_numpy(x), (50,), torch.from_numpy(layer.gamma), 1e-5)
    np.testing.assert_allclose(node(x=x)[0], expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("width", [64, 37])
def test_gate(library: Library, activation: str, width: int) -> None:
    x = rows(7, 2 * width) * 4
    y = Node(library, "Gate", [("x", np.float32)], {}, [("y", np.float32)], activation=activation)(x=x)[0]
    gates, values = torch.from_numpy(x).chunk(2, dim=1)
    np.testing.assert_allclose(y, (ACTIVATIONS[activation](gates) * values).numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("scale", "zero_point"), [(0.0, 128), (0.0, 0), (0.03, 128)])
def test_two_digits_are_nearly_exact(library: Library, scale: float, zero_point: int) -> None:
    layer, x = Layer(96, 200), rows(9, 200)
    if zero_point == 0:
        x = np.abs(x)
    y = layer.node(library, scale=scale, zero_point=zero_point, bits=16)(x=x)[0]
    exact = x.astype(np.float64) @ (layer.weight * layer.scales[:, None].astype(np.float64)).T + layer.bias
    eight = layer.node(library, scale=scale, zero_point=zero_point)(x=x)[0]
    assert np.abs(y - exact).max() < np.abs(eight - exact).max() / 100


def test_u8_results_feed_the_next_layer(library: Library) -> None:
    up, down, x = Layer(96, 64), Layer(64, 96, 1), rows(9, 64)
    inputs: Ports = [("x", np.float32), ("weight", np.int8), ("scales", np.float32), ("bias", np.float32)]
    attributes = {"scale": 0.03, "zero_point": 128, "out_scale": 0.11}
    first = Node(library, "QuantLinearU8", inputs, up.constants, [("y", np.uint8)], **attributes)
    relu = up.node(library, scale=0.03, zero_point=128, activation="relu")(x=x)[0]
    inner = first(x=x)[0]
    assert inner.dtype == np.uint8
    assert np.abs(inner.astype(int) - quantized(relu, 0.11, 0)).max() <= 1  # where a value lies in the middle
    assert np.mean(inner != quantized(relu, 0.11, 0)) < 0.01
    inputs[0] = ("x", np.uint8)
    second = Node(library, "QuantLinear", inputs, down.constants, [("y", np.float32)], scale=0.11, zero_point=0)
    np.testing.assert_allclose(second(x=inner)[0], down.product(inner, 0, 0.11), rtol=2e-6, atol=2e-5)


def test_a_row_is_the_same_alone_and_among_others(library: Library) -> None:
    layer, x = Layer(200, 256), rows(131, 256)
    for attributes in ({"scale": 0.0}, {"scale": 0.02}, {"scale": 0.0, "bits": 16}):
        node = layer.node(library, zero_point=128, **attributes)
        together = node(x=x)[0]
        for r in (0, 1, 64, 130):
            np.testing.assert_array_equal(node(x=x[r : r + 1])[0][0], together[r])


@pytest.mark.parametrize("scale", [0.0, 0.02])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_stays_so_and_alone(library: Library, scale: float, bad: float) -> None:
    layer, x = Layer(96, 64), rows(6, 64)
    node = layer.node(library, scale=scale, zero_point=128, activation="relu")
    good = node(x=x)[0]
    x[2, 17] = bad
    y = node(x=x)[0]
    assert np.isnan(y[2]).all()
    np.testing.assert_array_equal(np.delete(y, 2, 0), np.delete(good, 2, 0))


def test_a_row_of_zeros_gives_the_bias(library: Library) -> None:
    layer = Layer(96, 64)
    y = layer.node(library, scale=0.0, zero_point=128)(x=np.zeros((2, 64), np.float32))[0]
    np.testing.assert_array_equal(y, np.tile(layer.bias, (2, 1)))


def test_what_a_static_range_cuts_off_is_counted(library: Library) -> None:
    layer = Layer(96, 64)
    node = layer.node(library, scale=1.0, zero_point=128)
    before = library.counters().saturated
    x = np.zeros((2, 64), np.float32)
    x[0, :3], x[1, :2] = 127.2, (300, -300)
    y = node(x=x)[0]
    assert library.counters().saturated - before == 2
    np.testing.assert_allclose(y, layer.product(quantized(x, 1.0, 128), 128, 1.0), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("count", "outputs", "inputs"), [*SHAPES, (9, 20, 1536), (150, 40, 1999)])
def test_products_of_16_bits_are_off_by_rounding_alone(library: Library, count: int, outputs: int, inputs: int) -> None:
    layer, x = Wide(outputs, inputs), rows(count, inputs) * np.float32(3)
    x[0] = np.sign(x[0])  # all as large as the largest
    x[-1, 0] = 1e4  # and one that is far out
    found, expected = layer.node(library)(x=x)[0], layer.product(x)
    norms = np.linalg.norm(x, axis=1, keepdims=True) * np.linalg.norm(layer.weight * layer.scales[:, None], axis=1)
    assert (np.abs(found - expected) <= 0.5 / 32767 * np.sqrt(inputs) * norms + 1e-5).all()


def test_the_largest_products_of_16_bits_fit(library: Library) -> None:
    """A row that has the direction of a weight: their product is that of their norms."""
    layer = Wide(64, 1536)
    x = np.concatenate([layer.weight, -layer.weight]).astype(np.float32)
    np.testing.assert_allclose(layer.node(library)(x=x)[0], layer.product(x), rtol=1e-4, atol=30)


def test_rows_of_16_bits_do_not_depend_on_others(library: Library) -> None:
    layer, x = Wide(70, 100), rows(31, 100)
    x[3, 5], x[4], x[5] = np.nan, 0, 1e30
    node = layer.node(library, activation="gelu")
    together = node(x=x)[0]
    for row, found in zip(x, together, strict=True):
        np.testing.assert_array_equal(node(x=row[None])[0][0], found)
    assert np.isnan(together[3]).all() and np.isfinite(np.delete(together, 3, 0)).all()
