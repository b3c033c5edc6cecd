"""Weights in 8 bits: how near they are, and what is made up for."""

import numpy as np
import pytest
from numpy.typing import NDArray

from export.quantization.weights import quantize_weight

CHOOSE = np.random.default_rng(7)


def normal(*shape: int) -> NDArray[np.float32]:
    return CHOOSE.standard_normal(shape, np.float32)


def test_weights_are_no_further_off_than_by_their_largest_value() -> None:
    weight = normal(40, 64)
    numbers, scales = quantize_weight(weight)
    by_largest = np.abs(weight).max(axis=1, keepdims=True) / 127
    rounded = np.rint(weight / by_largest) * by_largest
    errors, expected = (np.square(found - weight).sum(axis=1) for found in (numbers * scales[:, None], rounded))
    assert numbers.dtype == np.int8 and np.abs(numbers.astype(int)).max() <= 127
    assert (errors <= expected * (1 + 1e-5)).all()


@pytest.mark.parametrize("largest", [127, 126, 97, 40, 1])
def test_weights_that_were_8_bits_once_are_kept(largest: int) -> None:
    grid = CHOOSE.integers(-largest, largest, (20, 64), endpoint=True)
    grid[:, 0] = largest
    weight = (grid * np.float32(0.00331)).astype(np.float16).astype(np.float32)  # as a checkpoint of 16 bits has them
    numbers, scales = quantize_weight(weight, normal(500, 64))
    np.testing.assert_allclose(numbers * scales[:, None], weight, rtol=1e-3, atol=1e-5)


def test_what_inputs_have_in_common_makes_up_for_errors() -> None:
    inputs = normal(2000, 8) @ normal(8, 64) + 0.1 * normal(2000, 64)
    weight = normal(30, 64)
    errors = []
    for numbers, scales in (quantize_weight(weight), quantize_weight(weight, inputs)):
        errors.append(np.square(inputs @ (numbers * scales[:, None] - weight).T).mean())
    assert errors[1] < errors[0] / 4


@pytest.mark.parametrize("inputs", [None, normal(50, 6)])
def test_an_output_without_weights_stays_one(inputs: NDArray[np.float32] | None) -> None:
    numbers, scales = quantize_weight(np.zeros((2, 6), np.float32), inputs)
    assert not numbers.any() and (scales > 0).all()


def test_an_input_that_never_comes_does_no_harm() -> None:
    inputs = normal(100, 8)
    inputs[:, 3] = 0
    weight = normal(4, 8)
    numbers, scales = quantize_weight(weight, inputs)
    np.testing.assert_allclose(numbers * scales[:, None], weight, atol=2 * scales.max())
