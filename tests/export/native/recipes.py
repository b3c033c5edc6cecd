"""Recipes of 8 bits for models with random weights."""

from typing import Literal

from torch import nn

from export.quantization.recipe import Activations, QuantizedLinear, Recipe
from export.quantization.weights import quantize_weight
from models.transformer import Transformer

SCALE = 0.05
"""Of static activations: hidden states are about 1."""


def recipe_of(model: Transformer, per_row: bool = True, without: str = "nothing", bits: Literal[8, 16] = 8) -> Recipe:
    """All linear layers, but those with a name that has `without` in it."""
    layers = {name: layer.weight for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    weights = layers | {"output": model.output_weight[: model.config.target_vocab_size]}
    unsigned = "down" if model.config.activation == "relu" and not model.config.gated else "nothing"
    return {
        name: QuantizedLinear(
            *quantize_weight(weight.detach().numpy()),
            Activations(SCALE, 0 if name.endswith(unsigned) else 128, per_row, bits),
        )
        for name, weight in weights.items()
        if without not in name
    }
