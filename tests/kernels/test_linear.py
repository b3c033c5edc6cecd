"""Linear, whose products are of fp32, against PyTorch in fp64."""

from typing import Any

import numpy as np
import pytest
import torch

from kernels.library import Library
from tests.kernels.node import Array, Node, Ports
from tests.kernels.test_quant_linear import ACTIVATIONS, SHAPES, Floats, rows

PORTS: Ports = [("x", np.float32), ("weight", np.float32), ("bias", np.float32)]


def layer(outputs: int, inputs: int) -> dict[str, Array]:
    rng = np.random.default_rng(outputs)
    weight = rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)
    return {"weight": weight.astype(np.float32), "bias": rng.standard_normal(outputs).astype(np.float32)}


def made(library: Library, constants: dict[str, Array], ports: Ports = PORTS, **attributes: Any) -> Node:
    return Node(library, "Linear", ports, constants, [("y", np.float32)], **attributes)


def expected(x: Floats, constants: dict[str, Array]) -> torch.Tensor:
    numbers = (torch.from_numpy(each).double() for each in (x, constants["weight"], constants["bias"]))
    return torch.nn.functional.linear(*numbers)


@pytest.mark.parametrize(("count", "outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_products_are_those_of_pytorch(
    library: Library, count: int, outputs: int, inputs: int, activation: str
) -> None:
    constants, x = layer(outputs, inputs), rows(count, inputs)
    y = made(library, constants, activation=activation)(x=x)[0]
    np.testing.assert_allclose(y, ACTIVATIONS[activation](expected(x, constants)).numpy(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_residual_and_a_norm_come_last(library: Library, norm: str) -> None:
    constants, x, residual = layer(70, 48), rows(9, 48), rows(9, 70, seed=2)
    gamma, beta = rows(2, 70, seed=3)
    ports: Ports = [*PORTS, ("residual", np.float32), ("gamma", np.float32), ("beta", np.float32)]
    node = made(library, constants | {"gamma": gamma, "beta": beta}, ports, norm=norm, epsilon=1e-3)
    y = node(x=x, residual=residual)[0]
    joined = expected(x, constants) + torch.from_numpy(residual)
    scale, shift = torch.from_numpy(gamma).double(), torch.from_numpy(beta).double()
    if norm == "layer":
        normal = torch.nn.functional.layer_norm(joined, (70,), scale, shift, 1e-3)
    else:
        normal = torch.nn.functional.rms_norm(joined, (70,), scale, 1e-3) + shift
    np.testing.assert_allclose(y, normal.numpy(), rtol=0, atol=2e-5)


def test_a_row_is_the_same_whoever_is_beside_it(library: Library) -> None:
    node, x = made(library, layer(130, 77)), rows(41, 77)
    together = node(x=x)[0]
    for count in range(1, 8):
        np.testing.assert_array_equal(node(x=x[:count])[0], together[:count])
    assert node(x=x[:0])[0].shape == (0, 130)


def test_a_row_that_is_no_number_changes_no_other(library: Library) -> None:
    node, x = made(library, layer(40, 24)), rows(7, 24)
    clean = node(x=x)[0]
    x[3, 5] = np.nan
    y = node(x=x)[0]
    assert np.isnan(y[3]).all()
    np.testing.assert_array_equal(np.delete(y, 3, 0), np.delete(clean, 3, 0))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"bias": np.zeros(5, np.float32)}, r"bias has the shape \[5\], not \[40\]"),
        ({"weight": np.zeros((40, 2, 12), np.float32)}, r"weight has the shape \[40, 2, 12\], not \[any, any\]"),
        ({"weight": np.zeros((40, 0), np.float32)}, "weight has 0 inputs; it must have at least 1"),
    ],
)
def test_what_cannot_be_a_layer_is_refused(library: Library, changed: dict[str, Array], said: str) -> None:
    with pytest.raises(Exception, match=said):
        made(library, layer(40, 24) | changed)


def test_rows_of_another_width_are_refused(library: Library) -> None:
    with pytest.raises(Exception, match=r"x has the shape \[3, 23\], not \[any, 24\]"):
        made(library, layer(40, 24))(x=rows(3, 23))
    ports: Ports = [*PORTS, ("residual", np.float32)]
    with pytest.raises(Exception, match=r"residual has the shape \[2, 40\], not \[3, 40\]"):
        made(library, layer(40, 24), ports)(x=rows(3, 24), residual=rows(2, 40))
