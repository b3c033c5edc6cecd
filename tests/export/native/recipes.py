"""Recipes of 8 bits for models with random weights."""

import torch
from torch import nn

from export.quantization.recipe import Activations, QuantizedLinear, Recipe
from export.quantization.weights import quantize_weight
from models.transformer import Transformer

SCALE = 0.05
"""Of static activations: hidden states are about 1."""


def recipe_of(model: Transformer, per_row: bool = True, without: str = "nothing") -> Recipe:
    """All linear layers, but those with a name that has `without` in it."""
    layers = {name: layer.weight for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    weights = layers | {"output": model.output_weight[: model.config.target_vocab_size]}
    return {
        name: _quantized(weight, per_row, positive=name.endswith("down") and model.config.activation == "relu")
        for name, weight in weights.items()
        if without not in name
    }


def _quantized(weight: torch.Tensor, per_row: bool, positive: bool) -> QuantizedLinear:
    numbers, scales = quantize_weight(weight.detach().numpy())
    return QuantizedLinear(numbers, scales, Activations(SCALE, 0 if positive else 128, per_row))
