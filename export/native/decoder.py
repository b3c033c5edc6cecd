"""The native decoder: one token of each row, whose cached tensors lie in slots."""

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import DataType

from export.native.layers import OUTPUT, Layers
from export.native.linear import quantization
from export.native.nodes import Attributes, Nodes, declared, variable
from export.quantization.recipe import Activations, Recipe
from models.layers import CrossAttention, DecoderLayer, Recurrence, SelfAttention
from models.package import signature
from models.package.declared.precision import Precision
from models.package.declared.tensors import CacheTensor
from models.transformer import Transformer

DTYPES: dict[Precision, DataType] = {"fp32": DataType.FLOAT, "fp16": DataType.FLOAT16}
LOOK = Activations(scale=1.0, zero_point=128)
"""How an output layer that is not in 8 bits is looked at in 8 bits, to find those tokens that may be the best."""


def native_decoder(model: Transformer, recipe: Recipe, cache: Sequence[CacheTensor], shortlist: bool) -> ir.Model:
    """The graph. cache: as `models.package.derived.native_tensors` has it."""
    return _Decoder(model, recipe, cache, shortlist).graph()


class _Decoder:
    """The graph while it grows."""

    def __init__(self, model: Transformer, recipe: Recipe, cache: Sequence[CacheTensor], shortlist: bool) -> None:
        self._model, self._recipe = model, recipe
        self._nodes = Nodes()
        self._layers = Layers(self._nodes, model, recipe)
        self._inputs = {name: _step_input(name) for name in signature.NATIVE_DECODER_INPUTS}
        self._past = cache_inputs(cache)
        self._allowed = variable(signature.ALLOWED, DataType.INT32, ["rows", "places"]) if shortlist else None
        self._present: list[ir.Value] = []
        self._written = [tensor for tensor in cache if tensor.owner == "hypothesis"]

    def graph(self) -> ir.Model:
        """All of it."""
        model, layers, width = self._model, self._layers, self._model.config.width
        inner = model.config.inner(model.config.decoder_heads)
        biases = layers.biases("target", len(model.decoder))
        x = layers.embed_target(self._inputs["ids"], self._inputs["positions"])
        for index, layer in enumerate(model.decoder):
            assert isinstance(layer, DecoderLayer)
            cell = layer.cell
            if isinstance(cell, Recurrence):
                x = self._recurrence(x, cell, index)
            else:
                x = self._attention(x, cell, index, biases[index])
            x, query = self._cross(x, layer.cross, index)
            x = layers.feed_forward(x, layer.feed_forward)
        hidden = layers.norm(x, model.decoder_norm)
        candidates, log_probs, normaliser = self._best_tokens(hidden)
        outputs = [
            *best_tokens_outputs(candidates, log_probs),
            *cache_outputs(self._present, self._written),
            declared(hidden, signature.HIDDEN, DataType.FLOAT, ["rows", width]),
            declared(query, signature.CROSS_QUERY, DataType.FLOAT, ["rows", inner]),
            declared(normaliser, signature.NORMALISER, DataType.FLOAT, ["rows"]),
        ]
        inputs = [*self._inputs.values(), *self._past.values(), *([self._allowed] if self._allowed else [])]
        return self._nodes.model("native_decoder", inputs, outputs)

    def _attention(self, x: ir.Value, layer: SelfAttention, index: int, bias: ir.Value | None) -> ir.Value:
        qkv = self._layers.project(x, layer.residual, layer.qkv)
        past = self._past[f"self_k{index}"], self._past[f"self_v{index}"]
        inputs = [qkv, *past, self._inputs["positions"], self._inputs["slots"], bias]
        attended, *present = self._nodes.ours_of_many("SelfAttention", inputs, 3, self._layers.scale())
        self._present += present
        return self._layers.leave(attended, layer.out, layer.residual, x)

    def _recurrence(self, x: ir.Value, layer: Recurrence, index: int) -> ir.Value:
        gates = self._layers.project(x, layer.residual, layer.forget, layer.candidate)
        inputs = [gates, self._past[f"state{index}"], self._inputs["slots"]]
        y, state = self._nodes.ours_of_many("SimpleRecurrence", inputs, 2)
        self._present.append(state)
        return self._layers.join(y, layer.residual, x)

    def _cross(self, x: ir.Value, layer: CrossAttention, index: int) -> tuple[ir.Value, ir.Value]:
        """Returns the queries second."""
        query = self._layers.project(x, layer.residual, layer.query)
        past = self._past[f"cross_k{index}"], self._past[f"cross_v{index}"]
        inputs = [query, *past, self._inputs["source_lengths"], self._inputs["source_slots"]]
        attended = self._nodes.ours("SourceAttention", inputs, self._layers.scale())
        return self._layers.leave(attended, layer.out, layer.residual, x), query

    def _best_tokens(self, hidden: ir.Value) -> Sequence[ir.Value]:
        """Ids and log-probabilities [rows, k], and normalisers [rows]."""
        output = self._recipe.get(OUTPUT)
        look = quantization(LOOK if output is None else output.activations)
        attributes: Attributes = {"scale": look["scale"], "zero_point": look["zero_point"], "exact": 1}
        coarse: list[ir.Value] = []
        if output is not None and (found := output.coarse) is not None:
            attributes = {**attributes, "margin": found.margin, "strange": found.strange, "key_bits": found.key_bits}
            parts = {"query": found.query, "key": found.key, "centre": found.centre}
            coarse = [self._nodes.constant(f"{OUTPUT}.coarse_{name}", part) for name, part in parts.items()]
        inputs = [hidden, self._inputs["ranks"], *self._layers.output(), self._allowed, *coarse]
        return self._nodes.ours_of_many("BestTokens", inputs, 3, attributes)


def _step_input(name: str) -> ir.Value:
    """An input with a number for each row, or for each rank."""
    dtype = DataType.INT64 if name in ("ids", "ranks") else DataType.INT32
    return variable(name, dtype, ["k" if name == "ranks" else "rows"])


def best_tokens_outputs(candidates: ir.Value, log_probs: ir.Value) -> list[ir.Value]:
    """Tokens int64 [rows, k] and their log-probabilities fp32 [rows, k]."""
    ids, scores = signature.DECODER_OUTPUTS
    return [
        declared(candidates, ids, DataType.INT64, ["rows", "k"]),
        declared(log_probs, scores, DataType.FLOAT, ["rows", "k"]),
    ]


def cache_inputs(cache: Sequence[CacheTensor]) -> dict[str, ir.Value]:
    """By name, the cache as it was before a step."""
    return {it.past: variable(it.past, DTYPES[it.precision], _slot_axes(it)) for it in cache}


def cache_outputs(present: Sequence[ir.Value], written: Sequence[CacheTensor]) -> list[ir.Value]:
    """The tensors that a step has written, as it leaves them."""
    return [
        declared(value, it.present, DTYPES[it.precision], _slot_axes(it))
        for value, it in zip(present, written, strict=True)
    ]


def _slot_axes(tensor: CacheTensor) -> list[str | int]:
    """Hypotheses and sources have slots of their own, and room of their own."""
    slots = "slots" if tensor.owner == "hypothesis" else "source_slots"
    names = {"rows": slots, "target": "capacity", "source": "source_capacity"}
    return [names[axis] if isinstance(axis, str) else axis for axis in tensor.axes]
