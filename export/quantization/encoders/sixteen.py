"""Linear layers in 16 bits: whole numbers whose products fit 32 bits, whatever the weights and the rows are.

A weight's row and a row of activations each get the scale that makes their norm at most 46,340, the root of 2^31. By
the Cauchy-Schwarz inequality no sum of their products, nor any part of it, is beyond 2^31 then. What is rounded away is
small beside the norm, so nothing is calibrated: of 1,536 numbers 2.4e-4 of it, of 384 half as much.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from export.quantization.calibrate import linear_layers
from export.quantization.layers import SMALLEST
from export.quantization.recipe import Activations, QuantizedLinear, Recipe
from models.transformer import Transformer

LARGEST = 32767
LARGEST_NORM = 46340.0
"""Its square is below 2^31."""
ACTIVATIONS = Activations(scale=0.0, zero_point=0, bits=16)


def sixteen_bits(model: Transformer) -> Recipe:
    """Every linear layer but the output layer."""
    weights = {name: layer.weight.detach().numpy() for name, layer in linear_layers(model).items()}
    return {name: QuantizedLinear(*quantize_weight(weight), ACTIVATIONS) for name, weight in weights.items()}


def quantize_weight(weight: NDArray[np.float32]) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """A weight [outputs, inputs] as s16 [outputs, inputs] and scales [outputs]."""
    numbers = weight.astype(np.float64)
    largest = np.maximum(np.abs(numbers).max(axis=1), SMALLEST)
    # Rounding moves each number by half of one at most.
    room = LARGEST_NORM - 0.5 * np.sqrt(weight.shape[1])
    norms = np.maximum(np.linalg.norm(numbers, axis=1), SMALLEST)
    scales = np.maximum(largest / LARGEST, norms / room).astype(np.float32)
    return np.rint(numbers / scales[:, None]).clip(-LARGEST, LARGEST).astype(np.int16), scales


class Linear16(nn.Module):
    """x W^T + b with W in s16 and x as it is: what graphs of standard operators compute. ONNX Runtime makes W once."""

    weight: Tensor
    scales: Tensor
    bias: Tensor

    def __init__(self, quantized: QuantizedLinear, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(quantized.weight))
        self.register_buffer("scales", torch.from_numpy(quantized.scales))
        self.register_buffer("bias", torch.zeros(len(self.scales)) if bias is None else bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """[rows, inputs] -> [rows, outputs]."""
        return F.linear(x, self.weight.float() * self.scales[:, None], self.bias)
