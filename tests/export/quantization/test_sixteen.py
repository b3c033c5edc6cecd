"""Linear layers in 16 bits: no sum of products is beyond 32 bits, and what is rounded away is small."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from export.quantization.encoders.sixteen import ACTIVATIONS, LARGEST_NORM, Linear16, quantize_weight
from export.quantization.recipe import QuantizedLinear

CHOOSE = np.random.default_rng(3)
WEIGHTS: dict[str, NDArray[np.float32]] = {
    "normal": CHOOSE.standard_normal((20, 384), np.float32),
    "all alike": np.full((4, 1536), -0.02, np.float32),
    "one that is far out": np.where(np.arange(64) == 5, 1e4, CHOOSE.standard_normal((3, 64))).astype(np.float32),
    "large and small": CHOOSE.standard_normal((2, 100), np.float32) * np.array([[1e25], [1e-20]], np.float32),
    "zeros": np.zeros((2, 8), np.float32),
    "one input": np.array([[-3.0], [0.5]], np.float32),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_norms_fit_and_errors_are_those_of_rounding(name: str) -> None:
    weight = WEIGHTS[name]
    numbers, scales = quantize_weight(weight)
    whole = numbers.astype(np.float64)
    assert numbers.dtype == np.int16 and (np.abs(whole) <= 32767).all()
    assert (np.linalg.norm(whole, axis=1) <= LARGEST_NORM).all()
    norms = np.linalg.norm(weight.astype(np.float64), axis=1)
    errors = np.linalg.norm(whole * scales[:, None] - weight, axis=1)
    assert (errors <= 0.51 / 32767 * np.sqrt(weight.shape[1]) * norms).all()


def test_a_layer_is_near_that_of_fp32() -> None:
    weight, bias = WEIGHTS["normal"], torch.randn(20)
    x = torch.randn(7, 384)
    found = Linear16(QuantizedLinear(*quantize_weight(weight), ACTIVATIONS), bias)(x)
    torch.testing.assert_close(found, torch.nn.functional.linear(x, torch.from_numpy(weight), bias), rtol=0, atol=0.02)
