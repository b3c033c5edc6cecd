"""The decoder step for GPUs: one token of each row, whose cached tensors lie in slots.

Nodes are ours, but for the product with the output layer, which is large, and norms that stand alone. A linear layer
has its input's norm, its bias, its activation and its residual in it: of so few rows a kernel takes about as long as
its start.
"""

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import DataType
from torch import nn

from export.native.decoder import best_tokens_outputs, cache_inputs, cache_outputs
from export.native.device.layers import DeviceLayers
from export.native.nodes import Attributes, declared, variable
from models.layers import CrossAttention, DecoderLayer, FeedForward, SelfAttention
from models.package import signature
from models.package.declared.tensors import CacheTensor
from models.transformer import Transformer

AXES = {"history": ["slots", "capacity"], "ranks": ["k"]}
"""Of inputs that have something else than a number for each row."""


def device_decoder(model: Transformer, cache: Sequence[CacheTensor]) -> ir.Model:
    """The graph, in the precision of the model's weights. cache: as `derived.step_tensors` has it."""
    return _Decoder(model, cache).graph()


class _Decoder:
    """The graph while it grows."""

    def __init__(self, model: Transformer, cache: Sequence[CacheTensor]) -> None:
        self._model, self._layers = model, DeviceLayers(model)
        self._nodes = self._layers.nodes
        self._inputs = {name: _step_input(name) for name in signature.DEVICE_DECODER_INPUTS}
        self._past = cache_inputs(cache)
        self._present: list[ir.Value] = []
        self._written = [tensor for tensor in cache if tensor.written]

    def graph(self) -> ir.Model:
        """All of it."""
        model = self._model
        hidden, query = self._through(self._embed())
        candidates, log_probs, logits = self._best_tokens(hidden)
        config, vocabulary, dtype = model.config, len(model.output_bias), self._layers.dtype
        inner = config.inner(config.decoder_heads)
        outputs = [
            *best_tokens_outputs(candidates, log_probs),
            *cache_outputs(self._present, self._written),
            declared(logits, signature.LOGITS, dtype, ["rows", vocabulary]),
            declared(query, signature.CROSS_QUERY, dtype, ["rows", inner]),
        ]
        return self._nodes.model("device_decoder", [*self._inputs.values(), *self._past.values()], outputs)

    def _embed(self) -> ir.Value:
        """Tokens at their positions: [rows, width]."""
        model, nodes, kind = self._model, self._nodes, self._model.config.decoder_embedding_norm
        table = nodes.constant("target_embedding", model.target_embedding)
        places = None
        if model.config.positions != "none":
            places = nodes.constant("target_positions", model.target_positions)
        inputs = [self._inputs["ids"], self._inputs["positions"], table]
        scale: Attributes = {"scale": float(model.embedding_scale)}
        if kind != "tokens":
            x = nodes.ours("EmbedTokens", [*inputs, places], scale)
            return self._layers.norm(x, model.decoder_embedding_norm) if kind == "sum" else x
        x = self._layers.norm(nodes.ours("EmbedTokens", inputs, scale), model.decoder_embedding_norm)
        return x if places is None else nodes.standard("Add", [x, nodes.standard("Gather", [places, inputs[1]])])

    def _through(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """What the output layer takes, and the last layer's queries to the source."""
        model = self._model
        sublayers = [part for layer in model.decoder for part in _sublayers(layer)]
        norms = [sublayer.residual.norm for sublayer in sublayers]
        pre = model.config.norm == "pre"
        # Where a sublayer's norm stands behind it, the next one reads the sum through it, and so does the residual.
        passed: nn.Module | None = None
        for index, sublayer in enumerate(sublayers):
            entered = _Normed(x, norms[index] if pre else passed)
            last: nn.Linear
            match sublayer:
                case SelfAttention():
                    qkv = self._linear_layer(entered, sublayer.qkv)
                    y, last = self._attention(qkv, index // 3), sublayer.out
                case CrossAttention():
                    query = self._linear_layer(entered, sublayer.query)
                    y, last = self._cross(query, index // 3), sublayer.out
                case FeedForward():
                    y, last = self._linear_layer(entered, sublayer.up, model.config.activation), sublayer.down
            x = self._linear_layer(_Normed(y), last, residual=_Normed(x, passed))
            passed = None if pre else norms[index]
        return self._layers.norm(self._layers.norm(x, passed), model.decoder_norm), query

    def _attention(self, qkv: ir.Value, index: int) -> ir.Value:
        past = self._past[f"self_k{index}"], self._past[f"self_v{index}"]
        where = [self._inputs[name] for name in ("positions", "slots", "history")]
        inputs = [qkv, *past, *where]
        attended, *present = self._nodes.ours_of_many("HistoryAttention", inputs, 3, self._layers.scale)
        self._present += present
        return attended

    def _cross(self, query: ir.Value, index: int) -> ir.Value:
        past = self._past[f"cross_k{index}"], self._past[f"cross_v{index}"]
        inputs = [query, *past, self._inputs["source_last"], self._inputs["source_slots"]]
        return self._nodes.ours("SlotAttention", inputs, self._layers.scale)

    def _best_tokens(self, hidden: ir.Value) -> Sequence[ir.Value]:
        """Ids and log-probabilities [rows, k], and logits [rows, vocabulary]."""
        model, nodes = self._model, self._nodes
        name = "target_embedding" if model.config.tie_output else "output_weight"
        weight, bias = nodes.constant(name, model.output_weight), nodes.constant("output_bias", model.output_bias)
        products = nodes.standard("Gemm", [hidden, weight], {"transB": 1})
        # The last output is memory that it computes in.
        found = nodes.ours_of_many("BestLogits", [hidden, products, weight, bias, self._inputs["ranks"]], 4)
        return found[:3]

    def _linear_layer(
        self, x: "_Normed", layer: nn.Linear, activation: str = "none", residual: "_Normed | None" = None
    ) -> ir.Value:
        """activation(x weight^T + bias) + residual, [rows, outputs]."""
        layers = self._layers
        inputs = [x.numbers, layers.weight(layer), layers.bias(layer), *self._layers.scale_and_shift(x.norm)]
        if residual is not None:
            inputs += [residual.numbers, *self._layers.scale_and_shift(residual.norm)]
        attributes: Attributes = {"activation": activation, "epsilon": self._model.config.norm_epsilon}
        return self._nodes.ours("RowLinear", inputs, attributes)


class _Normed(NamedTuple):
    """Numbers [rows, width], and what they are read through, if anything."""

    numbers: ir.Value
    norm: nn.Module | None = None


def _sublayers(layer: nn.Module) -> tuple[SelfAttention, CrossAttention, FeedForward]:
    assert isinstance(layer, DecoderLayer) and isinstance(layer.cell, SelfAttention)
    return layer.cell, layer.cross, layer.feed_forward


def _step_input(name: str) -> ir.Value:
    dtype = DataType.INT64 if name in ("ids", "ranks") else DataType.INT32
    return variable(name, dtype, AXES.get(name, ["rows"]))
