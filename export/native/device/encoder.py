"""The encoder for GPUs: sources one after another, without padding. See `models.package.signature`.

Nodes are ONNX Runtime's, but for attention. A sublayer's last bias is added where its residual is, because ONNX
Runtime's Gemm on CUDA adds one by a kernel of its own. No node looks at a shape, so that the graph can be captured.
"""

import onnx_ir as ir
import torch
from onnx_ir import DataType
from torch import nn

from export.native.device.layers import DeviceLayers
from export.native.nodes import declared, unused, variable
from models.layers import EncoderLayer, FeedForward, SelfAttention
from models.package import signature
from models.transformer import Transformer

DTYPES = DataType.INT64, DataType.INT32, DataType.INT32, DataType.INT32
"""Of the inputs."""


def device_encoder(model: Transformer) -> ir.Model:
    """The graph, in the precision of the model's weights."""
    return _Encoder(model).graph()


class _Encoder:
    """The graph while it grows."""

    def __init__(self, model: Transformer) -> None:
        self._model, self._layers = model, DeviceLayers(model)
        self._nodes = self._layers.nodes
        self._inputs = {
            name: variable(name, dtype, ["tokens"])
            for name, dtype in zip(signature.DEVICE_ENCODER_INPUTS, DTYPES, strict=True)
        }

    def graph(self) -> ir.Model:
        """All of it."""
        model, dtype = self._model, self._layers.dtype
        hidden = self._through(self._embed())
        cross = self._product(hidden, model.cross_kv)  # of all decoder layers: the model has them as one layer
        outputs = [
            declared(hidden, signature.HIDDEN, dtype, ["tokens", model.config.width]),
            declared(cross, signature.CROSS, dtype, ["tokens", model.cross_kv.out_features]),
        ]
        return self._nodes.model("device_encoder", list(self._inputs.values()), outputs)

    def _embed(self) -> ir.Value:
        """Tokens at their positions: [tokens, width]."""
        model, nodes, kind = self._model, self._nodes, self._model.config.encoder_embedding_norm
        table = nodes.constant("source_embedding", model.source_embedding)
        x = nodes.standard("Gather", [table, self._inputs["ids"]])
        if model.embedding_scale != 1.0:
            factor = torch.tensor(model.embedding_scale, dtype=model.source_embedding.dtype)
            x = nodes.standard("Mul", [x, nodes.constant("embedding_scale", factor)])
        if model.config.positions != "none":
            places = nodes.constant("source_positions", model.source_positions)
            x = nodes.standard("Add", [x, nodes.standard("Gather", [places, self._inputs["positions"]])])
        return self._layers.norm(x, model.encoder_embedding_norm) if kind == "sum" else x

    def _through(self, x: ir.Value) -> ir.Value:
        """What the last layer leaves."""
        sublayers = [part for layer in self._model.encoder for part in _sublayers(layer)]
        norms, last_norm = [sublayer.residual.norm for sublayer in sublayers], self._model.encoder_norm
        pre = self._model.config.norm == "pre"
        entered = self._layers.norm(x, norms[0]) if pre else x
        for index, sublayer in enumerate(sublayers):
            last: nn.Linear
            match sublayer:
                case SelfAttention():
                    y, last = self._attention(entered, sublayer), sublayer.out
                case FeedForward():
                    up = self._product(entered, sublayer.up)
                    y, last = self._layers.activate(up, self._model.config.activation), sublayer.down
            # Before a sublayer the next one's norm follows the sum, and the encoder's own the last sum.
            norm = norms[index] if not pre else [*norms, last_norm][index + 1]
            entered, x = self._join(y, last, x, norm, pre)
        return entered if pre else self._layers.norm(x, last_norm)

    def _attention(self, x: ir.Value, layer: SelfAttention) -> ir.Value:
        given = [self._product(x, layer.qkv), self._inputs["firsts"], self._inputs["lengths"]]
        return self._nodes.ours("PackedAttention", given, {"heads": layer.heads, **self._layers.scale})

    def _product(self, x: ir.Value, layer: nn.Linear) -> ir.Value:
        """A whole linear layer."""
        bias = self._layers.bias(layer)
        inputs = [x, self._layers.weight(layer), *([] if bias is None else [bias])]
        return self._nodes.standard("Gemm", inputs, {"transB": 1})

    def _join(self, y: ir.Value, last: nn.Linear, x: ir.Value, norm: nn.Module, pre: bool) -> tuple[ir.Value, ir.Value]:
        """A sublayer's last linear layer over `y`, and the residual: what the next sublayer gets, and adds to."""
        if not isinstance(norm, nn.LayerNorm):
            total = self._nodes.standard("Add", [x, self._product(y, last)])
            return total, total
        product = self._nodes.standard("Gemm", [y, self._layers.weight(last)], {"transB": 1})
        outputs = [ir.Value(), unused(), unused(), ir.Value()] if pre else [ir.Value()]  # the last is the sum
        inputs = [product, x, *self._layers.scale_and_shift(norm), self._layers.bias(last)]
        found = self._nodes.microsoft("SkipLayerNormalization", inputs, outputs, {"epsilon": norm.eps})
        return found[0], found[-1]


def _sublayers(layer: nn.Module) -> tuple[SelfAttention, FeedForward]:
    assert isinstance(layer, EncoderLayer)
    return layer.attention, layer.feed_forward
