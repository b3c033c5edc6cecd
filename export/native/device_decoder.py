"""The decoder step for GPUs: one token of each row, whose cached tensors lie in slots.

Nodes are ONNX Runtime's, but for attention and the choice of the best tokens: see `export.native.device_layers`.
"""

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import DataType
from torch import nn

from export.native.decoder import DTYPES, slot_axes
from export.native.device_layers import DeviceLayers, Sublayer
from export.native.nodes import declared, variable
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
        self._model, self._layers = model, DeviceLayers(model)
        self._nodes = self._layers.nodes
        self._inputs = {name: _step_input(name) for name in signature.DEVICE_DECODER_INPUTS}
        self._past = {it.past: variable(it.past, DTYPES[it.precision], slot_axes(it)) for it in cache}
        self._present: list[ir.Value] = []
        self._written = [tensor for tensor in cache if tensor.written]
        self._query: ir.Value
        """Of the last layer that looked at the source."""

    def graph(self) -> ir.Model:
        """All of it."""
        model, ids, positions = self._model, self._inputs["ids"], self._inputs["positions"]
        sublayers = [part for layer in model.decoder for part in _sublayers(layer)]
        x = self._layers.embed("target", ids, positions, model.config.decoder_embedding_norm)
        hidden = self._layers.through(x, sublayers, model.decoder_norm, self._compute)
        candidates, log_probs, logits = self._best_tokens(hidden)
        present = [
            declared(value, tensor.present, DTYPES[tensor.precision], slot_axes(tensor))
            for value, tensor in zip(self._present, self._written, strict=True)
        ]
        config, vocabulary, dtype = model.config, len(model.output_bias), self._layers.dtype
        inner = config.inner(config.decoder_heads)
        outputs = [
            declared(candidates, signature.DECODER_OUTPUTS[0], DataType.INT64, ["rows", "k"]),
            declared(log_probs, signature.DECODER_OUTPUTS[1], DataType.FLOAT, ["rows", "k"]),
            *present,
            declared(logits, signature.LOGITS, dtype, ["rows", vocabulary]),
            declared(self._query, signature.CROSS_QUERY, dtype, ["rows", inner]),
        ]
        return self._nodes.model("device_decoder", [*self._inputs.values(), *self._past.values()], outputs)

    def _compute(self, x: ir.Value, sublayer: Sublayer, index: int) -> tuple[ir.Value, nn.Linear]:
        """See `export.native.device_layers.Compute`."""
        match sublayer:
            case SelfAttention():
                return self._attention(x, sublayer, index // 3), sublayer.out
            case CrossAttention():
                self._query = self._layers.product(x, sublayer.query)
                return self._cross(self._query, index // 3), sublayer.out
            case FeedForward():
                return self._layers.feed_forward(x, sublayer)

    def _attention(self, x: ir.Value, layer: SelfAttention, index: int) -> ir.Value:
        past = self._past[f"self_k{index}"], self._past[f"self_v{index}"]
        where = [self._inputs[name] for name in ("positions", "slots", "history")]
        inputs = [self._layers.product(x, layer.qkv), *past, *where]
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


def _sublayers(layer: nn.Module) -> tuple[SelfAttention, CrossAttention, FeedForward]:
    assert isinstance(layer, DecoderLayer) and isinstance(layer.cell, SelfAttention)
    return layer.cell, layer.cross, layer.feed_forward


def _step_input(name: str) -> ir.Value:
    dtype = DataType.INT64 if name in ("ids", "ranks") else DataType.INT32
    return variable(name, dtype, AXES.get(name, ["rows"]))
