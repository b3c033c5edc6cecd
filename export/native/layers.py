"""What layers of encoder and decoder share, as nodes: embeddings, residuals, norms, feed-forward."""

import onnx_ir as ir
from torch import nn

from export.native.linear import Linear, LinearLayers, quantization
from export.native.nodes import Attributes, Nodes
from export.quantization.recipe import Recipe
from models.layers import FeedForward
from models.norms import Norm, Residual
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
        return self._embed("source", ids, positions, table, model.encoder_embedding_norm)

    def embed_target(self, ids: ir.Value, positions: ir.Value) -> ir.Value:
        """The same of the target: [rows, width]."""
        model = self._model
        table = self._table("target_embedding", model.target_embedding, model.config.target_vocab_size)
        return self._embed("target", ids, positions, table, model.decoder_embedding_norm)

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
        self, side: str, ids: ir.Value, positions: ir.Value, table: tuple[ir.Value, ir.Value | None], norm: nn.Module
    ) -> ir.Value:
        name, config = f"{side}_positions", self._model.config
        places = None if config.positions == "none" else self.nodes.constant(name, getattr(self._model, name))
        scale = {"scale": float(self._model.embedding_scale)}
        if side == "target" and config.decoder_embedding_norm == "tokens" and places is not None:
            tokens = self.norm(self.nodes.ours("Embed", [ids, positions, *table], scale), norm)
            return self.nodes.standard("Add", [tokens, self.nodes.standard("Gather", [places, positions])])
        return self.norm(self.nodes.ours("Embed", [ids, positions, *table, places], scale), norm)

    def project(self, x: ir.Value, residual: Residual, *layers: nn.Linear) -> ir.Value:
        """The first linear layer of a sublayer that gets `x`."""
        return self.linear.product(self._enter(x, residual), self.linear.find(*layers))

    def leave(self, y: ir.Value, layer: nn.Linear, residual: Residual, x: ir.Value) -> ir.Value:
        """The last linear layer of a sublayer that got `x`, and what `x` has become."""
        norm, attributes = ([], {}) if residual.pre else self._norm(residual.norm)
        return self.linear.product(y, self.linear.find(layer), added=[x, *norm], norm=attributes)

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
        if self._model.config.gated:
            gated = self.nodes.ours("Gate", [self.linear.product(entered, up)], {"activation": activation})
            return self.leave(gated, layer.down, layer.residual, x)
        out_scale = _known_scale(down)
        if activation == "relu" and up.activations is not None and out_scale is not None:
            attributes = {**quantization(up.activations), "activation": activation, "out_scale": out_scale}
            inner = self.nodes.ours("QuantLinearU8", up.inputs(entered), attributes)
        else:
            inner = self.linear.product(entered, up, activation)
        return self.leave(inner, layer.down, layer.residual, x)

    def norm(self, x: ir.Value, norm: nn.Module) -> ir.Value:
        """A norm that stands alone, where there is one: of embeddings, or after the last layer."""
        return self._normalise(x, norm) if isinstance(norm, Norm) else x

    def biases(self, side: str, layers: int) -> list[ir.Value | None]:
        """Of each layer's self-attention: what a score gets by the distance of its tokens [heads, span], if anything.

        Our operators go by the key's position less the query's; a decoder's table by the query's less the key's.
        """
        if self._model.config.relative == "none":
            return [None] * layers
        name = f"{side}_relative"
        relative = getattr(self._model, name)
        tables = [table if relative.both_ways else table.flip(0) for table in relative.tables]
        constants = [self.nodes.constant(f"{name}.{index}", table.T.contiguous()) for index, table in enumerate(tables)]
        return [*constants] if len(constants) == layers else [constants[0]] * layers

    def scale(self) -> Attributes:
        """Of attention: what a query's product with a key is multiplied by, if not what operators take by default."""
        return {} if self._model.config.scale_scores else {"scale": 1.0}

    def _enter(self, x: ir.Value, residual: Residual) -> ir.Value:
        return self._normalise(x, residual.norm) if residual.pre else x

    def _normalise(self, x: ir.Value, norm: nn.Module) -> ir.Value:
        constants, attributes = self._norm(norm)
        return self.nodes.ours("ResidualNorm", [x, None, *constants], attributes)

    def _norm(self, norm: nn.Module) -> tuple[list[ir.Value], Attributes]:
        """Constants and attributes of a node that ends with a norm."""
        assert isinstance(norm, Norm)
        name = self.linear.name(norm)
        parts = ("weight", "bias") if isinstance(norm, nn.LayerNorm) else ("weight",)
        constants = [self.nodes.constant(f"{name}.{part}", getattr(norm, part)) for part in parts]
        return constants, {"norm": self._model.config.norm_kind, "epsilon": norm.eps}


def _known_scale(linear: Linear) -> float | None:
    """Of a layer's input, if it may be quantized number by number where it is computed, and is at least 0."""
    kind = linear.activations
    return None if kind is None or kind.per_row or (kind.zero_point, kind.bits) != (0, 8) else float(kind.scale)
