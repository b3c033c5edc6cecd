"""Which layers bear 8 bits: measured one by one; what costs most gets more, until enough translations stay the same."""

from collections.abc import Sequence
from dataclasses import dataclass

from export.quantization.bits import widen_until
from export.quantization.calibrate import Pair
from export.quantization.model import native_model
from export.quantization.recipe import Recipe
from export.quantization.translations.drift import Logits, drift, equal_texts, teacher_forced
from export.tell import Tell
from models.package.manifest import LayerDrift
from models.transformer import Transformer

LEAST_EQUAL = 0.8125
"""Share of the translations that must stay the same."""
FEW = 12
"""Translations by which layers are compared with each other."""


@dataclass(frozen=True)
class Measured:
    """What a recipe costs."""

    equal: int
    """Translations that stay the same."""
    drift: float
    layers: tuple[LayerDrift, ...]


class Gate:
    """Measures recipes of a model on its translations."""

    def __init__(self, model: Transformer, pairs: Sequence[Pair]) -> None:
        self._model, self._pairs = model, pairs
        self._found = self._expected = teacher_forced(model, pairs)

    def hold(self, recipe: Recipe, tell: Tell) -> tuple[Recipe, Measured]:
        """The recipe, with more bits where they are needed, and what it costs then."""
        recipe, layers = widen_until(self._enough, recipe, self._drift_of, tell)
        return recipe, Measured(equal_texts(self._found, self._pairs), drift(self._found, self._expected), layers)

    def _enough(self, recipe: Recipe) -> bool:
        self._found = self._logits(recipe, self._pairs)
        return equal_texts(self._found, self._pairs) >= LEAST_EQUAL * len(self._pairs)

    def _drift_of(self, name: str, recipe: Recipe) -> float:
        """Of one layer alone."""
        return drift(self._logits({name: recipe[name]}, self._pairs[:FEW]), self._expected[:FEW])

    def _logits(self, recipe: Recipe, pairs: Sequence[Pair]) -> Logits:
        """As native graphs give them."""
        return teacher_forced(native_model(self._model, recipe), pairs)
