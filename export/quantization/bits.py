"""How many bits a layer's activations have.

A layer in 8 bits first gets 16 bits for its activations (twice the products, and no byte more), then stays fp32. The
output layer is left alone: what may be the best token is computed exactly anyway.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from export.quantization.calibrate import OUTPUT
from export.quantization.recipe import Recipe

LARGE_SHARE = 0.05
"""Of the squared drifts of all layers. A layer that makes more than that gets more bits in any case."""


def large(drifts: Mapping[str, float]) -> list[str]:
    """The layers that cost much more than others."""
    most = LARGE_SHARE * sum(value**2 for value in drifts.values())
    return [name for name, value in drifts.items() if name != OUTPUT and value**2 > most]


def widen(recipe: Recipe, name: str) -> Recipe:
    """With 16 bits for a layer's activations; without the layer, if it has them already."""
    layer = recipe[name]
    if layer.activations.bits == 8:
        return {**recipe, name: replace(layer, activations=replace(layer.activations, bits=16))}
    return {other: kept for other, kept in recipe.items() if other != name}


def activation_bits(recipe: Recipe, name: str) -> Literal[8, 16, 32]:
    """Of a layer's input."""
    return recipe[name].activations.bits if name in recipe else 32
