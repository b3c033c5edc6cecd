"""Linear layers in 8 bits, of standard operators.

Each forward's PyTorch body is its definition: sums of integers, exact in fp64. While torch.onnx.export traces, nodes of
ONNX Runtime's 8-bit kernels take its place, as in `models.attention`. An activation is quantized by a constant scale,
or by one of its row, so that no row's answer depends on the others.

ONNX Runtime's products of u8 with s8 saturate on processors without VNNI, see `engine.devices.session`.
"""

import torch
from torch import Tensor, nn

from export.quantization.recipe import QuantizedLinear
from models.attention.nodes import Attributes
from models.config import Activation
from models.layers import FeedForward
from models.norms import Residual

MICROSOFT = "com.microsoft"
LARGEST_PRODUCT = 255 * 127
LARGEST_WHOLE = 1 << 24
"""Up to here fp32 has all whole numbers."""
REST = 254
"""Steps of the second digit in a step of the first, which rounds by half of one at most."""
SMALLEST = 1e-30
"""Of the largest value of a row, so that a row of zeros has a scale."""


class Linear8(nn.Module):
    """x W^T + b with x in u8 and W in s8."""

    weight: Tensor
    scales: Tensor
    bias: Tensor
    scale: Tensor
    zero_point: Tensor
    one: Tensor
    zeros: Tensor

    def __init__(self, quantized: QuantizedLinear, bias: Tensor | None, per_row: bool, carries: bool = False) -> None:
        """`per_row`: scales of activations are found for each row; otherwise they are the recipe's.

        carries: what is not finite makes its row NaN. No number of 8 bits says so, and nothing beside the layer does.
        """
        super().__init__()
        self.activations, self.per_row, self.carries = quantized.activations, per_row, carries
        self.register_buffer("weight", torch.from_numpy(quantized.weight))
        self.register_buffer("scales", torch.from_numpy(quantized.scales))
        self.register_buffer("bias", torch.zeros(len(self.scales)) if bias is None else bias.detach())
        activations = quantized.activations
        # Two digits have room for a sign.
        self.unsigned = activations.zero_point == 0 and activations.bits == 8
        widened = 255 / 127 if activations.zero_point == 0 and not self.unsigned else 1.0
        self.register_buffer("scale", torch.tensor(activations.scale * widened))
        self.register_buffer("zero_point", torch.tensor(0 if self.unsigned else 128, dtype=torch.uint8))
        self.register_buffer("one", torch.tensor(1.0))
        self.register_buffer("zeros", torch.zeros(quantized.weight.shape[1], 1))

    def forward(self, x: Tensor) -> Tensor:
        """[rows, inputs] -> [rows, outputs]."""
        return self._linear(x) + self.not_finite(x) if self.carries else self._linear(x)

    def not_finite(self, x: Tensor) -> Tensor:
        """0 for each row of [rows, inputs] whose numbers are finite, NaN for others [rows, 1]."""
        return x @ self.zeros

    def _linear(self, x: Tensor) -> Tensor:
        scale = self._row_scales(x) if self.per_row else self.scale
        quantized = quantize(x, scale, self.zero_point)
        if self.activations.bits == 16:
            rest = x - dequantize(quantized, scale, self.zero_point)
            # One product, because ONNX Runtime cannot turn a weight of two to u8.
            digits = torch.stack([quantized, quantize(rest, scale / REST, self.zero_point)])
            high, low = self.product(digits, self.one).unbind()
            return (high + low * (1 / REST)) * scale.unsqueeze(-1) + self.bias
        if self.per_row:
            return self.product(quantized, self.one) * scale.unsqueeze(1) + self.bias
        return self.product(quantized, scale, self.bias)

    def product(self, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
        """Of u8 [..., inputs] by one scale: fp32 [..., outputs]."""
        return product(x, self.weight, scale, self.scales, self.zero_point, bias)

    def _row_scales(self, x: Tensor) -> Tensor:
        """The scale of each row [rows], by its largest absolute value."""
        largest, highest = (x, 255) if self.unsigned else (x.abs(), 127)
        return largest.max(1).values.clamp(min=SMALLEST) * (1 / highest)


class FeedForward8(nn.Module):
    """Both linear layers of a feed-forward sublayer with ReLU, by constant scales.

    What is between them is quantized where it is computed, with the zero point 0: values below it become 0.
    """

    inner_bias: Tensor
    weight_zero_points: Tensor

    def __init__(self, residual: Residual, up: Linear8, down: Linear8) -> None:
        super().__init__()
        self.residual, self.up, self.down = residual, up, down
        unit = up.scale.double() * up.scales.double()
        self.register_buffer("inner_bias", (up.bias / unit).round().int())
        self.register_buffer("weight_zero_points", torch.zeros(len(up.scales), dtype=torch.int8))

    @classmethod
    def of(cls, layer: FeedForward, activation: Activation) -> "FeedForward8 | None":
        """What takes the place of a layer, if both its linear layers are in 8 bits by constant scales."""
        up, down = layer.up, layer.down
        if layer.gated or activation != "relu" or not isinstance(up, Linear8) or not isinstance(down, Linear8):
            return None
        if up.per_row or down.per_row or (up.activations.bits, down.activations.bits) != (8, 8):
            return None
        return cls(layer.residual, up, down)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, width] -> [tokens, width]."""
        up, down = self.up, self.down
        entered = quantize(self.residual.enter(x), up.scale, up.zero_point)
        inner = self._inner(entered)
        return self.residual.leave(x, down.product(inner, down.scale, down.bias))

    def _inner(self, x: Tensor) -> Tensor:
        """u8 [tokens, width] -> u8 [tokens, inner]."""
        up, down = self.up, self.down
        shape = x.shape[0], len(up.scales)
        if torch.onnx.is_in_onnx_export():
            inputs = [x, up.scale, up.zero_point, up.weight.t(), up.scales, self.weight_zero_points, self.inner_bias]
            return torch.onnx.ops.symbolic(
                f"{MICROSOFT}::QGemm", [*inputs, down.scale, down.zero_point], version=1, dtype=torch.uint8, shape=shape
            )
        sums = integer_sums(x, up.weight, up.zero_point) + self.inner_bias
        unit = up.scale.double() * up.scales.double() / down.scale.double()
        return (sums * unit).round().clamp(0, 255).to(torch.uint8)


def quantize(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """fp32 [rows, inputs] -> u8, by one scale or by one of each row [rows]."""
    if torch.onnx.is_in_onnx_export():
        inputs, attributes = _of_rows(x, scale, zero_point)
        return torch.onnx.ops.symbolic("QuantizeLinear", inputs, attributes, dtype=torch.uint8, shape=x.shape)
    scale = scale.unsqueeze(-1)
    return ((x / scale).round() + zero_point).clamp(0, 255).to(torch.uint8)


def dequantize(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """u8 [rows, inputs] -> fp32."""
    if torch.onnx.is_in_onnx_export():
        inputs, attributes = _of_rows(x, scale, zero_point)
        return torch.onnx.ops.symbolic("DequantizeLinear", inputs, attributes, dtype=torch.float32, shape=x.shape)
    return (x.float() - zero_point) * scale.unsqueeze(-1)


def _of_rows(x: Tensor, scale: Tensor, zero_point: Tensor) -> tuple[list[Tensor], Attributes]:
    """Inputs and attributes of a node that quantizes by rows, or all alike."""
    return ([x, scale, zero_point], {}) if scale.ndim == 0 else ([x, scale, zero_point.expand(x.shape[0])], {"axis": 0})


def product(
    x: Tensor, weight: Tensor, scale: Tensor, scales: Tensor, zero_point: Tensor, bias: Tensor | None = None
) -> Tensor:
    """x: u8 [..., inputs]; weight: s8 [outputs, inputs]. Returns fp32 [..., outputs]."""
    if torch.onnx.is_in_onnx_export():
        return torch.onnx.ops.symbolic(
            f"{MICROSOFT}::MatMulIntegerToFloat",
            [x, weight.t(), scale, scales, zero_point, None, bias],
            version=1,
            dtype=torch.float32,
            shape=(*x.shape[:-1], weight.shape[0]),
        )
    found = integer_sums(x, weight, zero_point).float() * (scale * scales)
    return found if bias is None else found + bias


def integer_sums(x: Tensor, weight: Tensor, zero_point: Tensor) -> Tensor:
    """(x - zero_point) W^T: whole numbers, exact in fp32 where there are few inputs, otherwise in fp64."""
    dtype = torch.float32 if LARGEST_PRODUCT * x.shape[-1] <= LARGEST_WHOLE else torch.float64
    return (x.to(dtype) - zero_point) @ weight.to(dtype).T
