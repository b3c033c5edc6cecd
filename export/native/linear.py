"""Linear layers as nodes.

One that the recipe has is a `QuantLinear`. One that it has not is a `Linear` over the weight as it is traced, [outputs,
inputs], so that a file has it once for both kinds of graphs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from torch import Tensor, nn

from export.native.nodes import Attributes, Nodes
from export.quantization.recipe import Activations, QuantizedLinear, Recipe


@dataclass(frozen=True)
class Linear:
    """The constants of a linear layer."""

    weight: ir.Value
    """[outputs, inputs]"""
    bias: ir.Value
    scales: ir.Value | None = None
    """[outputs], of a weight in 8 or 16 bits."""
    activations: Activations | None = None
    """How its input is quantized, if it is."""

    def inputs(self, x: ir.Value) -> list[ir.Value | None]:
        """Of a node that multiplies `x` with it."""
        return [x, self.weight, self.bias] if self.scales is None else [x, self.weight, self.scales, self.bias]


class LinearLayers:
    """Those of a model."""

    def __init__(self, nodes: Nodes, model: nn.Module, recipe: Recipe) -> None:
        self._nodes, self._recipe = nodes, recipe
        self._names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}

    def name(self, module: nn.Module) -> str:
        """In the model."""
        return self._names[module]

    def find(self, *layers: nn.Linear) -> Linear:
        """A layer, or several of one input as one: their outputs stand one behind the other.

        Several are in 8 or 16 bits if all are, and quantize their input alike.
        """
        named = [(self._names[layer], layer) for layer in layers]
        bias = self._joined([self._nodes.constant(f"{name}.bias", _bias(layer)) for name, layer in named])
        recipes = [self._recipe[name] for name, _ in named if name in self._recipe]
        if len(recipes) < len(layers) or len({recipe.activations for recipe in recipes}) > 1:
            weights = [self._nodes.constant(f"{name}.weight", layer.weight) for name, layer in named]
            return Linear(self._joined(weights), bias)
        pairs = [self.quantized(name, recipe) for (name, _), recipe in zip(named, recipes, strict=True)]
        weight, scales = (self._joined(parts) for parts in zip(*pairs, strict=True))
        return Linear(weight, bias, scales, recipes[0].activations)

    def quantized(self, name: str, recipe: QuantizedLinear, outputs: int | None = None) -> tuple[ir.Value, ir.Value]:
        """Weight and scales of a layer, or of its first outputs."""
        weight, scales = recipe.weight[:outputs], recipe.scales[:outputs]
        return self._nodes.constant(f"{name}.quantized", weight), self._nodes.constant(f"{name}.scales", scales)

    def product(
        self,
        x: ir.Value,
        linear: Linear,
        activation: str = "none",
        added: Sequence[ir.Value | None] = (),
        norm: Attributes | None = None,
    ) -> ir.Value:
        """activation(x weight^T + bias), [rows, outputs].

        added: a residual, and the constants of a norm that comes last, whose attributes are `norm`
        """
        attributes: Attributes = {"activation": activation, **(norm or {})}
        if linear.activations is None:
            return self._nodes.ours("Linear", [*linear.inputs(x), *added], attributes)
        attributes = {**quantization(linear.activations), **attributes}
        return self._nodes.ours("QuantLinear", [*linear.inputs(x), *added], attributes)

    def _joined(self, parts: Sequence[ir.Value]) -> ir.Value:
        """ONNX Runtime joins constants once, when it loads the graph."""
        return parts[0] if len(parts) == 1 else self._nodes.standard("Concat", parts, {"axis": 0})


def quantization(activations: Activations) -> Attributes:
    """Of a node, how it quantizes its input. Scale 0: it finds one for each row."""
    scale = 0.0 if activations.per_row else float(activations.scale)
    return {"scale": scale, "zero_point": activations.zero_point, "bits": activations.bits}


def _bias(layer: nn.Linear) -> Tensor | NDArray[np.float32]:
    return np.zeros(layer.out_features, np.float32) if layer.bias is None else layer.bias
