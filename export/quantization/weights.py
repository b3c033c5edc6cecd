"""Weights of linear layers in 8 bits, with a scale for each output."""

import numpy as np
from numpy.typing import NDArray

LARGEST = 127
STEPS = range(64, LARGEST + 1)
"""Into so many steps a row's largest weight may be divided. Fewer need not be tried: of 63, 126 are a multiple."""
EXACT = 1e-3
"""Share of the largest weight. Where none is further off, the weights were 8 bits once, and nothing is to make up."""
DAMPING = 0.01
"""Share of the mean squared input that is added to every input's, so that the inverse exists (Frantar et al. 2022)."""

Numbers = NDArray[np.float32]


def quantize_weight(weight: Numbers, inputs: Numbers | None = None) -> tuple[NDArray[np.int8], Numbers]:
    """A weight [outputs, inputs] as s8 [outputs, inputs] and scales [outputs].

    inputs: some that the layer gets [tokens, inputs]. With them, the error of an input's weights is made up for by
    those of the inputs after it: Frantar et al. 2022, "GPTQ: Accurate Post-Training Quantization for Generative
    Pre-trained Transformers", algorithm 1.
    """
    scales = choose_scales(weight)
    rounded = _round(weight, scales)
    if inputs is None or np.allclose(
        rounded * scales[:, None], weight, rtol=0, atol=EXACT * float(np.abs(weight).max())
    ):
        return rounded, scales
    correction = _correction(inputs)
    left = weight.astype(np.float32, copy=True)
    quantized = np.empty(weight.shape, np.int8)
    for column, factors in enumerate(correction):
        quantized[:, column] = _round(left[:, column, None], scales)[:, 0]
        error = left[:, column] - quantized[:, column] * scales
        left[:, column + 1 :] -= np.outer(error, factors[column + 1 :] / factors[column])
    return quantized, scales


def choose_scales(weight: Numbers) -> Numbers:
    """The scale of each output that leaves the smallest squared error, among those that clip nothing.

    Weights that were 8 bits once are multiples of some scale; it is found, and they are kept as they are.
    """
    largest = np.maximum(np.abs(weight).max(axis=1), np.finfo(np.float32).tiny)
    scales = np.zeros_like(largest)
    smallest = np.full(len(weight), np.inf)
    for steps in STEPS:
        scale = largest / steps
        error = np.square(weight - _round(weight, scale) * scale[:, None]).sum(axis=1)
        scales = np.where(error < smallest, scale, scales)
        smallest = np.minimum(error, smallest)
    # The largest weight says the scale only as exactly as it is rounded itself: all of them say it better.
    quantized = _round(weight, scales).astype(np.float32)
    squares = np.square(quantized).sum(axis=1)
    fitted = (weight * quantized).sum(axis=1) / np.maximum(squares, 1)
    found: Numbers = np.where(squares > 0, fitted, scales).astype(np.float32)
    return found


def _round(weight: Numbers, scales: Numbers) -> NDArray[np.int8]:
    rounded: NDArray[np.int8] = np.rint(weight / scales[:, None]).clip(-LARGEST, LARGEST).astype(np.int8)
    return rounded


def _correction(inputs: Numbers) -> Numbers:
    """The upper Cholesky factor of the inverse, whose rows say how the error of an input goes to those after it."""
    products = inputs.T.astype(np.float64) @ inputs
    damped = products + DAMPING * np.trace(products) / len(products) * np.eye(len(products))
    factor: Numbers = np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
    return factor
