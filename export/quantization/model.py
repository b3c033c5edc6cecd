"""A model in 8 or 16 bits, as graphs of standard operators compute it."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from export.quantization.calibrate import OUTPUT, linear_layers
from export.quantization.encoders.sixteen import Linear16
from export.quantization.layers import FeedForward8, Linear8, product
from export.quantization.recipe import QuantizedLinear, Recipe
from models.best_tokens import padded_size
from models.layers import FeedForward
from models.package.declared.precision import Precision
from models.transformer import Transformer


def standard_model(model: Transformer, recipe: Recipe) -> "QuantizedTransformer":
    """As graphs of standard operators compute it.

    The encoder has a scale for each row, because constant ones hurt it most; the decoder has constant ones, because
    every step pays for every node.
    """
    return QuantizedTransformer(model, recipe, in_encoder, exact_output=False).eval()


def native_model(model: Transformer, recipe: Recipe) -> "QuantizedTransformer":
    """As native graphs compute it, but for the order of sums."""
    return QuantizedTransformer(model, recipe, lambda name: recipe[name].activations.per_row, exact_output=True).eval()


def in_encoder(layer: str) -> bool:
    """Whether a layer sees sources."""
    return layer.startswith("encoder") or layer == "cross_kv"


def leads_from_source(layer: str) -> bool:
    """Whether a layer is on the one way from a source to its targets. Residuals lead around all others but the last."""
    return layer == "cross_kv" or layer.endswith("cross.out")


class QuantizedTransformer(Transformer):
    """A model with the layers of a recipe in 8 or 16 bits. Everything else stays as it is."""

    def __init__(self, model: Transformer, recipe: Recipe, per_row: Callable[[str], bool], exact_output: bool) -> None:
        """`per_row`: whether the layer of a name finds a scale for each row of its input."""
        with torch.device("meta"):  # no memory, and no time for random weights
            super().__init__(model.config)
        self.load_state_dict(model.state_dict(), assign=True)
        self.precision: Precision = "int16" if any(map(_wide, recipe.values())) else "int8"
        for name, layer in linear_layers(model).items():
            if (quantized := recipe.get(name)) is not None:
                wide = _wide(quantized)
                self.set_submodule(
                    name,
                    Linear16(quantized, layer.bias)
                    if wide
                    else Linear8(quantized, layer.bias, per_row(name), leads_from_source(name)),
                )
        for name, module in list(self.named_modules()):
            if isinstance(module, FeedForward) and (joined := FeedForward8.of(module, model.config.activation)):
                self.set_submodule(name, joined)
        self.output = OutputLayer8(recipe[OUTPUT], model.output_bias, exact_output) if OUTPUT in recipe else None

    def logits(self, x: Tensor, output: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """See Transformer."""
        if self.output is None or output is not None:
            return super().logits(x, output)
        logits: Tensor = self.output(self.decoder_norm(x))
        return logits

    def not_finite(self, x: Tensor) -> Tensor:
        """What logits in 8 bits do not say of hidden states [rows, width]: 0, or NaN of a row that is not finite.

        [rows, 1], or a number for all rows where the output layer is in fp32.
        """
        return x.new_zeros(()) if self.output is None else self.output.not_finite(x)

    def output_rows(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """See Transformer."""
        return super().output_rows(ids) if self.output is None else (self.output.rows(ids), self.output_bias[ids])

    def _embed(self, ids: Tensor, table: Tensor) -> Tensor:
        shared = self.config.tie_output and (table is self.target_embedding or self.config.share_embeddings)
        if self.output is None or not shared:
            return super()._embed(ids, table)
        return self.output.rows(ids) * self.embedding_scale


def _wide(layer: QuantizedLinear) -> bool:
    return layer.weight.dtype == np.int16


class OutputLayer8(Linear8):
    """The output layer, which may be the embedding table too. It gives logits of the padded vocabulary."""

    filler: Tensor
    filler_scales: Tensor

    def __init__(self, quantized: QuantizedLinear, bias: Tensor, exact: bool) -> None:
        """`exact`: only the weights are in 8 bits."""
        super().__init__(quantized, bias, per_row=False)
        self.exact = exact
        padding = padded_size(len(quantized.scales)) - len(quantized.scales)
        self.register_buffer("filler", torch.zeros(padding, quantized.weight.shape[1], dtype=torch.int8))
        self.register_buffer("filler_scales", torch.ones(padding))

    def forward(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, padded vocabulary]."""
        return (
            F.linear(x, self._padded() * self._padded_scales()[:, None], self.bias)
            if self.exact
            else super().forward(x)
        )

    def rows(self, ids: Tensor) -> Tensor:
        """Of these tokens [...]: fp32 [..., width]."""
        return F.embedding(ids, self.weight).float() * F.embedding(ids, self.scales[:, None])

    def product(self, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
        """See Linear8."""
        return product(x, self._padded(), scale, self._padded_scales(), self.zero_point, bias)

    def _padded(self) -> Tensor:
        return torch.cat([self.weight, self.filler])

    def _padded_scales(self) -> Tensor:
        return torch.cat([self.scales, self.filler_scales])
