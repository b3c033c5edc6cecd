"""Linear layers in 8 bits, of standard operators.

Each forward's PyTorch body is its definition: sums of integers, exact in fp64. While torch.onnx.export traces, nodes of
ONNX Runtime's 8-bit kernels take its place, as in `models.attention`. An activation is quantized by a constant scale,
or by one of its row, so that no row's answer depends on the others.

ONNX Runtime's products of u8 with s8 saturate on processors without VNNI, see `engine.devices.session`.
"""

import torch
from torch import Tensor, nn

from export.quantization.recipe import Activations, QuantizedLinear
from models.config import Activation
from models.layers import FeedForward

MICROSOFT = "com.microsoft"
SMALLEST = 1e-30
"""Of the largest value of a row, so that a row of zeros has a scale."""


class Linear8(nn.Module):
    """x W^T + b with x in u8 and W in s8."""

    weight: Tensor
    scales: Tensor
    bias: Tensor

    def __init__(self, quantized: QuantizedLinear, bias: Tensor | None, per_row: bool) -> None:
        """`per_row`: scales of activations are found for each row; otherwise they are the recipe's."""
        super().__init__()
        self.activations, self.per_row = quantized.activations, per_row
        self.register_buffer("weight", torch.from_numpy(quantized.weight))
        self.register_buffer("scales", torch.from_numpy(quantized.scales))
        self.register_buffer("bias", torch.zeros(len(self.scales)) if bias is None else bias.detach())
        self.register_buffer("scale", torch.tensor(quantized.activations.scale))
        self.register_buffer("zero_point", torch.tensor(quantized.activations.zero_point, dtype=torch.uint8))
        self.register_buffer("one", torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        """[rows, inputs] -> [rows, outputs]."""
        if self.per_row:
            scales = row_scales(x, self.activations)
            quantized = quantize_rows(x, scales, self.zero_point)
            return self.product(quantized, self.one, None) * scales[:, None] + self.bias
        return self.product(quantize(x, self.scale, self.zero_point), self.scale, self.bias)

    def product(self, quantized: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
        """Of u8 [rows, inputs] with a scale: fp32 [rows, outputs]."""
        return product(quantized, self.weight, scale, self.scales, self.zero_point, bias)


class FeedForward8(nn.Module):
    """Both linear layers of a feed-forward sublayer with ReLU, by constant scales.

    What is between them is quantized where it is computed, with the zero point 0: values below it become 0.
    """

    inner_bias: Tensor

    def __init__(self, layer: FeedForward) -> None:
        """Takes the place of a layer that it `fits`."""
        super().__init__()
        self.residual, self.up, self.down = layer.residual, layer.up, layer.down
        up = self.up
        unit = up.scale.double() * up.scales.double()
        self.register_buffer("inner_bias", (up.bias / unit).round().int())
        self.register_buffer("weight_zero_points", torch.zeros(len(up.scales), dtype=torch.int8))

    @staticmethod
    def fits(layer: FeedForward, activation: Activation) -> bool:
        """Whether both linear layers are in 8 bits, by constant scales, with a ReLU between them."""
        parts = layer.up, layer.down
        return activation == "relu" and all(isinstance(part, Linear8) and not part.per_row for part in parts)

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
    """fp32 [rows, inputs] -> u8, by one scale."""
    if torch.onnx.is_in_onnx_export():
        return torch.onnx.ops.symbolic("QuantizeLinear", [x, scale, zero_point], dtype=torch.uint8, shape=x.shape)
    return ((x / scale).round() + zero_point).clamp(0, 255).to(torch.uint8)


def row_scales(x: Tensor, activations: Activations) -> Tensor:
    """The scale of each row [rows], by its largest absolute value."""
    if activations.zero_point == 0:
        return x.max(1).values.clamp(min=SMALLEST) * (1 / 255)
    return x.abs().max(1).values.clamp(min=SMALLEST) * (1 / 127)


def quantize_rows(x: Tensor, scales: Tensor, zero_point: Tensor) -> Tensor:
    """fp32 [rows, inputs] -> u8, by a scale for each row [rows]."""
    zero_points = zero_point.expand(x.shape[0])
    if torch.onnx.is_in_onnx_export():
        inputs, attributes = [x, scales, zero_points], {"axis": 0}
        return torch.onnx.ops.symbolic("QuantizeLinear", inputs, attributes, dtype=torch.uint8, shape=x.shape)
    return ((x / scales[:, None]).round() + zero_points[:, None]).clamp(0, 255).to(torch.uint8)


def product(
    x: Tensor, weight: Tensor, scale: Tensor, scales: Tensor, zero_point: Tensor, bias: Tensor | None = None
) -> Tensor:
    """x: u8 [rows, inputs]; weight: s8 [outputs, inputs]. Returns fp32 [rows, outputs]."""
    if torch.onnx.is_in_onnx_export():
        return torch.onnx.ops.symbolic(
            f"{MICROSOFT}::MatMulIntegerToFloat",
            [x, weight.t(), scale, scales, zero_point, None, bias],
            version=1,
            dtype=torch.float32,
            shape=(x.shape[0], weight.shape[0]),
        )
    found = integer_sums(x, weight, zero_point).float() * (scale * scales)
    return found if bias is None else found + bias


def integer_sums(x: Tensor, weight: Tensor, zero_point: Tensor) -> Tensor:
    """(x - zero_point) W^T, whole numbers as fp64."""
    return (x.double() - zero_point) @ weight.double().T
