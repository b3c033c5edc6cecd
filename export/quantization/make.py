"""A model and what goes through it -> the numbers of its 8 bits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from export.quantization.calibrate import OUTPUT, Inputs, Pair, linear_layers, observe
from export.quantization.coarse import find_coarse_look
from export.quantization.recipe import Activations, QuantizedLinear, Recipe
from export.quantization.weights import Numbers, quantize_weight
from models.transformer import Transformer

CLIPS = np.linspace(0.2, 1, 41)
"""Shares of the largest value at which it is tried to clip."""


def make_recipe(model: Transformer, pairs: Sequence[Pair]) -> Recipe:
    """Every linear layer and the output layer in 8 bits, their activations calibrated on these translations."""
    output = model.output_weight[: model.config.target_vocab_size]
    weights = {name: layer.weight for name, layer in linear_layers(model).items()} | {OUTPUT: output}
    found = observe(model, pairs)
    recipe = {
        name: quantize_layer(weight.detach().numpy(), found[name], has_no_sign(model, name))
        for name, weight in weights.items()
    }
    layer, bias = recipe[OUTPUT], model.output_bias[: len(output)].detach().numpy()
    look = find_coarse_look(found[OUTPUT].kept, layer.weight * layer.scales[:, None], bias)
    return {**recipe, OUTPUT: replace(layer, coarse=look)}


def quantize_layer(weight: Numbers, inputs: Inputs, unsigned: bool) -> QuantizedLinear:
    """A layer with weight [outputs, inputs]. `unsigned`: no input is ever negative."""
    quantized, scales = quantize_weight(weight, inputs.kept)
    return QuantizedLinear(quantized, scales, choose_activations(inputs, unsigned))


def has_no_sign(model: Transformer, layer: str) -> bool:
    """Whether nothing that goes into a layer can be negative: what comes out of a ReLU, unless it is gated."""
    config = model.config
    return layer.endswith("feed_forward.down") and config.activation == "relu" and not config.gated


def choose_activations(inputs: Inputs, unsigned: bool) -> Activations:
    """The scale that leaves the smallest squared error: what is far out is clipped where that serves the rest."""
    lowest, highest = (0, 255) if unsigned else (-128, 127)
    largest = max(inputs.largest, float(np.finfo(np.float32).tiny))
    scales = [float(largest * share / highest) for share in CLIPS]
    errors = [
        np.square(np.rint(inputs.kept / scale).clip(lowest, highest) * scale - inputs.kept).mean() for scale in scales
    ]
    return Activations(scale=scales[int(np.argmin(errors))], zero_point=0 if unsigned else 128)
