"""What encoder and decoder for GPUs share, as nodes: embeddings, sublayers and their residuals.

Nodes are ONNX Runtime's, but for attention. A sublayer's last bias is added where its residual is, because ONNX
Runtime's Gemm on CUDA adds one by a kernel of its own. No node looks at a shape, so that the graphs can be captured.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import onnx_ir as ir
import torch
from torch import nn

from export.native.decoder import DTYPES
from export.native.linear import LinearLayers
from export.native.nodes import Attributes, Nodes, unused
from export.tracing.variant import PRECISIONS
from models.layers import CrossAttention, FeedForward, SelfAttention
from models.transformer import Transformer

Sublayer = SelfAttention | CrossAttention | FeedForward
Compute = Callable[[ir.Value, Sublayer, int], tuple[ir.Value, nn.Linear]]
"""What a sublayer gets, the sublayer and its number -> what its last linear layer gets, and that layer."""


class DeviceLayers:
    """Those of a model, in a graph."""

    def __init__(self, model: Transformer) -> None:
        self._model, self.nodes = model, Nodes()
        self._linear = LinearLayers(self.nodes, model, {})
        self.dtype = DTYPES[PRECISIONS[model.target_embedding.dtype]]
        self.scale: Attributes = {} if model.config.scale_scores else {"scale": 1.0}
        """Of attention."""

    def embed(self, side: Literal["source", "target"], ids: ir.Value, positions: ir.Value, kind: str) -> ir.Value:
        """Tokens at their positions: [tokens, width]. kind: what is normalised, as `ModelConfig` has it."""
        model, nodes = self._model, self.nodes
        table: nn.Parameter = getattr(model, f"{side}_embedding")
        norm = model.encoder_embedding_norm if side == "source" else model.decoder_embedding_norm
        x = nodes.standard("Gather", [nodes.constant(f"{side}_embedding", table), ids])
        if model.embedding_scale != 1.0:
            factor = torch.tensor(model.embedding_scale, dtype=table.dtype)
            x = nodes.standard("Mul", [x, nodes.constant("embedding_scale", factor)])
        if kind == "tokens":
            x = self.norm(x, norm)
        if model.config.positions != "none":
            places = nodes.constant(f"{side}_positions", getattr(model, f"{side}_positions"))
            x = nodes.standard("Add", [x, nodes.standard("Gather", [places, positions])])
        return self.norm(x, norm) if kind == "sum" else x

    def through(self, x: ir.Value, sublayers: Sequence[Sublayer], last_norm: nn.Module, compute: Compute) -> ir.Value:
        """What becomes of `x`. last_norm: of this side, after its last layer."""
        norms = [sublayer.residual.norm for sublayer in sublayers]
        pre = self._model.config.norm == "pre"
        entered = self.norm(x, norms[0]) if pre else x
        for index, sublayer in enumerate(sublayers):
            y, last = compute(entered, sublayer, index)
            # Before a sublayer the next one's norm follows the sum, and the side's own the last sum.
            norm = norms[index] if not pre else [*norms, last_norm][index + 1]
            entered, x = self._join(y, last, x, norm, pre)
        return entered if pre else self.norm(x, last_norm)

    def feed_forward(self, x: ir.Value, layer: FeedForward) -> tuple[ir.Value, nn.Linear]:
        """See `Compute`."""
        return self._linear.activate(self.product(x, layer.up), self._model.config.activation), layer.down

    def product(self, x: ir.Value, layer: nn.Linear) -> ir.Value:
        """A whole linear layer."""
        return self.nodes.standard("Gemm", [x, self._weight(layer), *self._bias(layer)], {"transB": 1})

    def norm(self, x: ir.Value, norm: nn.Module) -> ir.Value:
        """A norm that stands alone, where there is one."""
        if not isinstance(norm, nn.LayerNorm):
            return x
        return self.nodes.standard("LayerNormalization", [x, *self._scale_and_shift(norm)], {"epsilon": norm.eps})

    def _join(self, y: ir.Value, last: nn.Linear, x: ir.Value, norm: nn.Module, pre: bool) -> tuple[ir.Value, ir.Value]:
        """A sublayer's last linear layer over `y`, and the residual: what the next sublayer gets, and adds to."""
        if not isinstance(norm, nn.LayerNorm):
            total = self.nodes.standard("Add", [x, self.product(y, last)])
            return total, total
        product = self.nodes.standard("Gemm", [y, self._weight(last)], {"transB": 1})
        outputs = [ir.Value(), unused(), unused(), ir.Value()] if pre else [ir.Value()]  # the last is the sum
        inputs = [product, x, *self._scale_and_shift(norm), *self._bias(last)]
        found = self.nodes.microsoft("SkipLayerNormalization", inputs, outputs, {"epsilon": norm.eps})
        return found[0], found[-1]

    def _scale_and_shift(self, norm: nn.LayerNorm) -> list[ir.Value]:
        name = self._linear.name(norm)
        return [self.nodes.constant(f"{name}.{part}", getattr(norm, part)) for part in ("weight", "bias")]

    def _weight(self, layer: nn.Linear) -> ir.Value:
        return self.nodes.constant(f"{self._linear.name(layer)}.weight", layer.weight)

    def _bias(self, layer: nn.Linear) -> list[ir.Value]:
        name = f"{self._linear.name(layer)}.bias"
        return [] if layer.bias is None else [self.nodes.constant(name, layer.bias)]
