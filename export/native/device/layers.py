"""What encoder and decoder for GPUs share: the constants of their layers as nodes, and norms that stand alone."""

import onnx_ir as ir
from torch import nn

from export.native.decoder import DTYPES
from export.native.linear import LinearLayers
from export.native.nodes import Attributes, Nodes
from export.tracing.variant import PRECISIONS
from models.transformer import Transformer


class DeviceLayers:
    """Those of a model, in a graph."""

    def __init__(self, model: Transformer) -> None:
        self.nodes = Nodes()
        self._linear = LinearLayers(self.nodes, model, {})
        self.dtype = DTYPES[PRECISIONS[model.target_embedding.dtype]]
        self.scale: Attributes = {} if model.config.scale_scores else {"scale": 1.0}
        """Of attention."""

    def norm(self, x: ir.Value, norm: nn.Module | None) -> ir.Value:
        """A norm that stands alone, where there is one."""
        if not isinstance(norm, nn.LayerNorm):
            return x
        return self.nodes.standard("LayerNormalization", [x, *self.scale_and_shift(norm)], {"epsilon": norm.eps})

    def scale_and_shift(self, norm: nn.Module | None) -> list[ir.Value | None]:
        """Of a norm; where there is none, two inputs that are left out."""
        if not isinstance(norm, nn.LayerNorm):
            return [None, None]
        name = self._linear.name(norm)
        return [self.nodes.constant(f"{name}.{part}", getattr(norm, part)) for part in ("weight", "bias")]

    def weight(self, layer: nn.Linear) -> ir.Value:
        """Of a layer [outputs, inputs]."""
        return self.nodes.constant(f"{self._linear.name(layer)}.weight", layer.weight)

    def bias(self, layer: nn.Linear) -> ir.Value | None:
        """Of a layer that has one [outputs]."""
        name = f"{self._linear.name(layer)}.bias"
        return None if layer.bias is None else self.nodes.constant(name, layer.bias)

    def activate(self, x: ir.Value, activation: str) -> ir.Value:
        """activation(x), by operators of ONNX."""
        match activation:
            case "relu":
                return self.nodes.standard("Relu", [x])
            case "gelu":
                return self.nodes.standard("Gelu", [x])
            case "gelu_tanh":
                return self.nodes.standard("Gelu", [x], {"approximate": "tanh"})
            case "swish":
                return self.nodes.standard("Mul", [x, self.nodes.standard("Sigmoid", [x])])
            case _:
                return x
