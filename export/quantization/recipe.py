"""What becomes of a model's linear layers in 8 or 16 bits: numbers that the standard and the native graphs share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Activations:
    """How a layer's input is quantized: q = round(x / scale) + zero_point, in 0..255."""

    scale: float
    """Calibrated; what standard graphs use."""
    zero_point: Literal[0, 128]
    """0: no value is negative."""
    per_row: bool = True
    """Native graphs find a scale for each row instead. Either way an answer does not depend on its batch mates."""
    bits: Literal[8, 16] = 8


@dataclass(frozen=True, slots=True, eq=False)
class CoarseLook:
    """By what native graphs choose the tokens whose logits they compute: see `export.quantization.coarse`."""

    query: NDArray[np.float32]
    """Of a row less the centre [numbers + probes, width]: what a look is made of, then what it leaves out."""
    key: NDArray[np.float32]
    """Of a token's weight less the mean [numbers, width]."""
    key_bits: int
    """So many are kept of each number of a token's key."""
    centre: NDArray[np.float32]
    """Of rows [width]."""
    margin: float
    """Below the best look."""
    strange: float
    """The most that the look of a row may leave out, by the norm of the probes. Of others all logits are computed."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedLinear:
    """A linear layer."""

    weight: NDArray[np.int8] | NDArray[np.int16]
    """[outputs, inputs], within -127..127, or as `export.quantization.encoders.sixteen` says"""
    scales: NDArray[np.float32]
    """[outputs]"""
    activations: Activations
    coarse: CoarseLook | None = None
    """Of the output layer, where it pays."""


Recipe = Mapping[str, QuantizedLinear]
"""By the layer's name in the model: `encoder.0.attention.qkv`, `decoder.0.feed_forward.up`, `cross_kv`, and `output`
for the output layer. A layer that is not in it stays as it is."""
