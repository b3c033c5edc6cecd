"""What layers of encoder and decoder share, as nodes: embeddings, residuals, norms, feed-forward."""

import onnx_ir as ir
from torch import nn

from export.native.linear import Linear, LinearLayers, quantization
from export.native.nodes import Attributes, Nodes
from export.quantization.recipe import Recipe
from models.layers import FeedForward, Norm, Residual
from models.transformer import Transformer

OUTPUT = "output"
"""The output layer's name in a recipe."""


class Layers:
    """Those of a model, in a graph."""

    def __init__(self, nodes: Nodes, model: Transformer, recipe: Recipe) -> None:
        self.nodes, self.recipe = nodes, recipe
        self.linear = LinearLayers(nodes, model, recipe)
        self._model = model

    def embed_source(self, ids: ir.Value, positions: ir.Value) -> ir.Value:
        """Tokens at their positions: [tokens, width]."""
        model = self._model
        table = self._table("source_embedding", model.source_embedding, model.config.source_vocab_size)
        return self._embed(ids, positions, table, self.nodes.constant("source_positions", model.source_positions))

    def embed_target(self, ids: ir.Value, positions: ir.Value) -> ir.Value:
        """The same of the target: [rows, width]."""
        model = self._model
        table = self._table("target_embedding", model.target_embedding, model.config.target_vocab_size)
        return self._embed(ids, positions, table, self.nodes.constant("target_positions", model.target_positions))

    def output(self) -> tuple[ir.Value, ir.Value | None, ir.Value]:
        """Of the output layer: weight [vocabulary, width], scales if that is in 8 bits, and bias."""
        model, size = self._model, self._model.config.target_vocab_size
        bias = self.nodes.constant("output_bias", model.output_bias[:size])
        name = "target_embedding" if model.config.tie_output else "output_weight"
        return *self._table(name, model.output_weight, size), bias

    def _table(self, name: str, table: nn.Parameter, size: int) -> tuple[ir.Value, ir.Value | None]:
        """A row for each token; and their scales, if the table is the output layer's, and that is in 8 bits."""
        if OUTPUT in self.recipe and table is self._model.output_weight:
            return self.linear.quantized(OUTPUT, self.recipe[OUTPUT], size)
        return self.nodes.constant(name, table[:size]), None

    def _embed(
        self, ids: ir.Value, positions: ir.Value, table: tuple[ir.Value, ir.Value | None], position_table: ir.Value
    ) -> ir.Value:
        scale = {"scale": float(self._model.embedding_scale)}
        return self.nodes.ours("Embed", [ids, positions, *table, position_table], scale)

    def project(self, x: ir.Value, residual: Residual, *layers: nn.Linear) -> ir.Value:
        """The first linear layer of a sublayer that gets `x`."""
        return self.linear.product(self._enter(x, residual), self.linear.find(*layers))

    def leave(self, y: ir.Value, layer: nn.Linear, residual: Residual, x: ir.Value) -> ir.Value:
        """The last linear layer of a sublayer that got `x`, and what `x` has become."""
        linear = self.linear.find(layer)
        if linear.activations is None:
            return self.join(self.linear.product(y, linear), residual, x)
        norm, attributes = ([], {}) if residual.pre else self._norm(residual.norm)
        attributes = {**quantization(linear.activations), "activation": "none", **attributes}
        return self.nodes.ours("QuantLinear", [*linear.inputs(y), x, *norm], attributes)

    def join(self, y: ir.Value, residual: Residual, x: ir.Value) -> ir.Value:
        """What a sublayer that got `x` gives, and `x`."""
        if residual.pre:
            return self.nodes.standard("Add", [x, y])
        norm, attributes = self._norm(residual.norm)
        return self.nodes.ours("ResidualNorm", [y, x, *norm], attributes)

    def feed_forward(self, x: ir.Value, layer: FeedForward) -> ir.Value:
        """The whole sublayer."""
        entered, up, down = self._enter(x, layer.residual), self.linear.find(layer.up), self.linear.find(layer.down)
        activation = self._model.config.activation
        out_scale = _known_scale(down)
        if activation == "relu" and up.activations is not None and out_scale is not None:
            attributes = {**quantization(up.activations), "activation": activation, "out_scale": out_scale}
            inner = self.nodes.ours("QuantLinearU8", up.inputs(entered), attributes)
        else:
            inner = self.linear.product(entered, up, activation)
        return self.leave(inner, layer.down, layer.residual, x)

    def last_norm(self, x: ir.Value, norm: nn.Module) -> ir.Value:
        """After the last layer, where norms come first."""
        return self._normalise(x, norm) if isinstance(norm, nn.LayerNorm) else x

    def _enter(self, x: ir.Value, residual: Residual) -> ir.Value:
        return self._normalise(x, residual.norm) if residual.pre else x

    def _normalise(self, x: ir.Value, norm: Norm) -> ir.Value:
        constants, _ = self._norm(norm)
        return self.nodes.standard("LayerNormalization", [x, *constants], {"epsilon": norm.eps})

    def _norm(self, norm: Norm) -> tuple[list[ir.Value], Attributes]:
        """Constants and attributes of a node that ends with a norm."""
        name = self.linear.name(norm)
        constants = [self.nodes.constant(f"{name}.{part}", getattr(norm, part)) for part in ("weight", "bias")]
        return constants, {"norm": "layer", "epsilon": norm.eps}


def _known_scale(linear: Linear) -> float | None:
    """Of a layer's input, if it may be quantized number by number where it is computed, and is at least 0."""
    kind = linear.activations
    return None if kind is None or kind.per_row or (kind.zero_point, kind.bits) != (0, 8) else float(kind.scale)
