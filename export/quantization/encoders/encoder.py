"""An encoder alone to one of 8 bits: calibrate, measure, and more bits where the vectors want them.

To one of 16 bits nothing of that is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from export.quantization.bits import widen_until
from export.quantization.calibrate import encode, linear_layers, observe_encoder
from export.quantization.encoders.sixteen import sixteen_bits
from export.quantization.make import has_no_sign, quantize_layer
from export.quantization.model import QuantizedTransformer, native_model, standard_model
from export.quantization.recipe import Recipe
from export.quantization.texts import Calibration
from export.tell import Tell
from models.encoding import Encoding
from models.package.manifest import VectorQuantization
from models.transformer import Transformer

LEAST_COSINE = 0.999
"""Of the vectors in 8 bits to those of fp32, in the mean of the samples."""
FEW = 12
"""Texts by which layers are compared with each other."""

Sources = Sequence[Sequence[int]]
Vectors = NDArray[np.float64]
"""Of length 1 [texts, numbers]."""


@dataclass(frozen=True)
class QuantizedEncoder:
    """What a model has become."""

    model: QuantizedTransformer
    """As the graph of standard operators computes it."""
    recipe: Recipe
    """What the native graph is made by."""
    report: VectorQuantization | None = None
    """Of 8 bits."""


def round_encoder(model: Transformer) -> QuantizedEncoder:
    """Every linear layer in 16 bits."""
    recipe = sixteen_bits(model)
    return QuantizedEncoder(standard_model(model, recipe), recipe)


def quantize_encoder(
    model: Transformer,
    encoding: Encoding,
    calibration: Calibration,
    texts: Sources,
    samples: Sources,
    tell: Tell,
) -> QuantizedEncoder:
    """Every linear layer that bears it in 8 bits.

    texts: token ids of what `calibration` has; samples: of what is measured on
    """
    tell(f"{len(texts)} texts to calibrate on")
    found = observe_encoder(model, texts)
    layers = linear_layers(model)
    recipe: Recipe = {
        name: quantize_layer(layers[name].weight.detach().numpy(), inputs, has_no_sign(model, name))
        for name, inputs in found.items()
    }
    gate = _Gate(model, encoding, samples)
    recipe, drifts = widen_until(gate.enough, recipe, gate.drift_of, tell)
    report = VectorQuantization(
        calibration_sha256=calibration.sha256,
        calibration_sentences=len(texts),
        sentences=len(samples),
        cosine=float(gate.cosines.mean()),
        least_cosine=float(gate.cosines.min()),
        layers=drifts,
    )
    return QuantizedEncoder(standard_model(model, recipe), recipe, report)


class _Gate:
    """Measures recipes of a model on the vectors of its samples."""

    def __init__(self, model: Transformer, encoding: Encoding, samples: Sources) -> None:
        self._model, self._encoding, self._samples = model, encoding, samples
        self._expected = self._vectors(model, samples)
        self.cosines = np.ones(len(samples))
        """Of the vectors by the recipe that `enough` has seen last to those of fp32 [samples]."""

    def enough(self, recipe: Recipe) -> bool:
        """Whether the vectors are near enough."""
        self.cosines = self._cosines(recipe, self._samples)
        return bool(self.cosines.mean() >= LEAST_COSINE)

    def drift_of(self, name: str, recipe: Recipe) -> float:
        """Of one layer alone: the angle that it turns vectors by, in radians."""
        cosines = self._cosines({name: recipe[name]}, self._samples[:FEW])
        return float(np.arccos(cosines.clip(-1, 1)).mean())

    def _cosines(self, recipe: Recipe, samples: Sources) -> NDArray[np.float64]:
        """Of each sample's vector, as the native graph gives it, to that of fp32."""
        found = self._vectors(native_model(self._model, recipe), samples)
        cosines: NDArray[np.float64] = (found * self._expected[: len(samples)]).sum(1)
        return cosines

    @torch.no_grad()
    def _vectors(self, model: Transformer, samples: Sources) -> Vectors:
        vectors = [self._encoding.of(encode(model, source)[0].numpy()).data for source in samples]
        found = np.stack([np.asarray(vector, np.float64).ravel() for vector in vectors])
        unit: Vectors = found / np.linalg.norm(found, axis=1, keepdims=True)
        return unit
