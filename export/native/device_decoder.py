"""The decoder step for GPUs: one token of each row, whose cached tensors lie in slots.

Nodes are ONNX Runtime's, but for attention and the choice of the best tokens. A sublayer's last bias is added where its
residual is, because ONNX Runtime's Gemm on CUDA adds one by a kernel of its own.
"""

from collections.abc import Sequence

import onnx_ir as ir
import torch
from onnx_ir import DataType
from torch import nn

from export.native.decoder import DTYPES, slot_axes
from export.native.linear import LinearLayers
from export.native.nodes import Attributes, Nodes, declared, unused, variable
from export.tracing.variant import PRECISIONS
from models.layers import CrossAttention, DecoderLayer, FeedForward, SelfAttention
from models.package import signature
from models.package.declared.tensors import CacheTensor
from models.transformer import Transformer

AXES = {"history": ["slots", "capacity"], "ranks": ["k"]}
"""Of inputs that have something else than a number for each row."""


def device_decoder(model: Transformer, cache: Sequence[CacheTensor]) -> ir.Model:
    """The graph, in the precision of the model's weights. cache: as `derived.device_tensors` has it."""
    return _Decoder(model, cache).graph()


class _Decoder:
    """The graph while it grows."""

    def __init__(self, model: Transformer, cache: Sequence[CacheTensor]) -> None:
        self._model, self._nodes = model, Nodes()
        self._linear = LinearLayers(self._nodes, model, {})
        self._dtype = DTYPES[PRECISIONS[model.target_embedding.dtype]]
        self._inputs = {name: _step_input(name) for name in signature.DEVICE_DECODER_INPUTS}
        self._past = {it.past: variable(it.past, DTYPES[it.precision], slot_axes(it)) for it in cache}
        self._present: list[ir.Value] = []
        self._written = [tensor for tensor in cache if tensor.written]
        self._scale: Attributes = {} if model.config.scale_scores else {"scale": 1.0}

    def graph(self) -> ir.Model:
        """All of it."""
        hidden, query = self._layers(self._embed())
        candidates, log_probs, logits = self._best_tokens(hidden)
        present = [
            declared(value, tensor.present, DTYPES[tensor.precision], slot_axes(tensor))
            for value, tensor in zip(self._present, self._written, strict=True)
        ]
        config, vocabulary = self._model.config, len(self._model.output_bias)
        inner = config.inner(config.decoder_heads)
        outputs = [
            declared(candidates, signature.DECODER_OUTPUTS[0], DataType.INT64, ["rows", "k"]),
            declared(log_probs, signature.DECODER_OUTPUTS[1], DataType.FLOAT, ["rows", "k"]),
            *present,
            declared(logits, signature.LOGITS, self._dtype, ["rows", vocabulary]),
            declared(query, signature.CROSS_QUERY, self._dtype, ["rows", inner]),
        ]
        return self._nodes.model("device_decoder", [*self._inputs.values(), *self._past.values()], outputs)

    def _embed(self) -> ir.Value:
        """Tokens at their positions: [rows, width]."""
        model, nodes, kind = self._model, self._nodes, self._model.config.decoder_embedding_norm
        table = nodes.constant("target_embedding", model.target_embedding)
        x = nodes.standard("Gather", [table, self._inputs["ids"]])
        if model.embedding_scale != 1.0:
            factor = torch.tensor(model.embedding_scale, dtype=model.target_embedding.dtype)
            x = nodes.standard("Mul", [x, nodes.constant("embedding_scale", factor)])
        if kind == "tokens":
            x = self._norm(x, model.decoder_embedding_norm)
        if model.config.positions != "none":
            positions = nodes.constant("target_positions", model.target_positions)
            x = nodes.standard("Add", [x, nodes.standard("Gather", [positions, self._inputs["positions"]])])
        return self._norm(x, model.decoder_embedding_norm) if kind == "sum" else x

    def _layers(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """What the output layer takes, and the last layer's queries to the source."""
        model = self._model
        sublayers = [part for layer in model.decoder for part in _sublayers(layer)]
        norms = [sublayer.residual.norm for sublayer in sublayers]
        pre = model.config.norm == "pre"
        entered = self._norm(x, norms[0]) if pre else x
        for index, sublayer in enumerate(sublayers):
            last: nn.Linear
            match sublayer:
                case SelfAttention():
                    y, last = self._attention(entered, sublayer, index // 3), sublayer.out
                case CrossAttention():
                    query = self._product(entered, sublayer.query)
                    y, last = self._cross(query, index // 3), sublayer.out
                case FeedForward():
                    up = self._product(entered, sublayer.up)
                    y, last = self._linear.activate(up, model.config.activation), sublayer.down
            # Before a sublayer the next one's norm follows the sum, and the model's own the last sum.
            norm = norms[index] if not pre else [*norms, model.decoder_norm][index + 1]
            entered, x = self._join(y, last, x, norm, pre)
        return entered if pre else self._norm(x, model.decoder_norm), query

    def _attention(self, x: ir.Value, layer: SelfAttention, index: int) -> ir.Value:
        past = self._past[f"self_k{index}"], self._past[f"self_v{index}"]
        where = [self._inputs[name] for name in ("positions", "slots", "history")]
        inputs = [self._product(x, layer.qkv), *past, *where]
        attended, *present = self._nodes.ours_of_many("HistoryAttention", inputs, 3, self._scale)
        self._present += present
        return attended

    def _cross(self, query: ir.Value, index: int) -> ir.Value:
        past = self._past[f"cross_k{index}"], self._past[f"cross_v{index}"]
        inputs = [query, *past, self._inputs["source_last"], self._inputs["source_slots"]]
        return self._nodes.ours("SlotAttention", inputs, self._scale)

    def _best_tokens(self, hidden: ir.Value) -> Sequence[ir.Value]:
        """Ids and log-probabilities [rows, k], and logits [rows, vocabulary]."""
        model, nodes = self._model, self._nodes
        name = "target_embedding" if model.config.tie_output else "output_weight"
        weight, bias = nodes.constant(name, model.output_weight), nodes.constant("output_bias", model.output_bias)
        products = nodes.standard("Gemm", [hidden, weight], {"transB": 1})
        # The last output is memory that it computes in.
        found = nodes.ours_of_many("BestLogits", [hidden, products, weight, bias, self._inputs["ranks"]], 4)
        return found[:3]

    def _product(self, x: ir.Value, layer: nn.Linear) -> ir.Value:
        return self._nodes.standard("Gemm", [x, self._weight(layer), *self._bias(layer)], {"transB": 1})

    def _join(self, y: ir.Value, last: nn.Linear, x: ir.Value, norm: nn.Module, pre: bool) -> tuple[ir.Value, ir.Value]:
        """A sublayer's last linear layer over `y`, and the residual: what the next sublayer gets, and adds to."""
        if not isinstance(norm, nn.LayerNorm):
            total = self._nodes.standard("Add", [x, self._product(y, last)])
            return total, total
        product = self._nodes.standard("Gemm", [y, self._weight(last)], {"transB": 1})
        outputs = [ir.Value(), unused(), unused(), ir.Value()] if pre else [ir.Value()]  # the last is the sum
        inputs = [product, x, *self._scale_and_shift(norm), *self._bias(last)]
        found = self._nodes.microsoft("SkipLayerNormalization", inputs, outputs, {"epsilon": norm.eps})
        return found[0], found[-1]

    def _norm(self, x: ir.Value, norm: nn.Module) -> ir.Value:
        """A norm that stands alone, where there is one."""
        if not isinstance(norm, nn.LayerNorm):
            return x
        return self._nodes.standard("LayerNormalization", [x, *self._scale_and_shift(norm)], {"epsilon": norm.eps})

    def _scale_and_shift(self, norm: nn.LayerNorm) -> list[ir.Value]:
        name = self._linear.name(norm)
        return [self._nodes.constant(f"{name}.{part}", getattr(norm, part)) for part in ("weight", "bias")]

    def _weight(self, layer: nn.Linear) -> ir.Value:
        return self._nodes.constant(f"{self._linear.name(layer)}.weight", layer.weight)

    def _bias(self, layer: nn.Linear) -> list[ir.Value]:
        name = f"{self._linear.name(layer)}.bias"
        return [] if layer.bias is None else [self._nodes.constant(name, layer.bias)]


def _sublayers(layer: nn.Module) -> tuple[SelfAttention, CrossAttention, FeedForward]:
    assert isinstance(layer, DecoderLayer) and isinstance(layer.cell, SelfAttention)
    return layer.cell, layer.cross, layer.feed_forward


def _step_input(name: str) -> ir.Value:
    dtype = DataType.INT64 if name in ("ids", "ranks") else DataType.INT32
    return variable(name, dtype, AXES.get(name, ["rows"]))
