"""How many bits a layer's activations have: what costs most gets more, until all together costs little enough.

A layer in 8 bits first gets 16 bits for its activations (twice the products, and no byte more), then stays fp32. The
output layer is left alone: what may be the best token is computed exactly anyway.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from export.quantization.calibrate import OUTPUT
from export.quantization.recipe import Recipe
from export.tell import Tell
from models.package.manifest import LayerDrift

LARGE_SHARE = 0.05
"""Of the squared drifts of all layers. A layer that makes more than that gets more bits in any case."""


def widen_until(
    enough: Callable[[Recipe], bool],
    recipe: Recipe,
    drift_of: Callable[[str, Recipe], float],
    tell: Tell,
) -> tuple[Recipe, tuple[LayerDrift, ...]]:
    """The recipe, with more bits where they are needed, and what each layer costs then.

    enough: measures a recipe; it is asked last of the one that is returned
    drift_of: of a layer of a recipe, alone in 8 bits
    """
    drifts = {}
    for name in recipe:
        tell(f"drift of {name}")
        drifts[name] = drift_of(name, recipe)
    for name in large(drifts):
        recipe = widen(recipe, name)
        tell(f"more bits for {name}")
        drifts[name] = drift_of(name, recipe)
    while not enough(recipe) and (left := [name for name in recipe if name != OUTPUT]):
        worst = max(left, key=drifts.__getitem__)
        recipe = widen(recipe, worst)
        tell(f"more bits for {worst}")
        drifts[worst] = drift_of(worst, recipe) if worst in recipe else 0.0
    return recipe, tuple(
        LayerDrift(layer=name, drift=drift, activation_bits=activation_bits(recipe, name))
        for name, drift in drifts.items()
    )


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
