"""A coarse look at the output layer: few numbers of a row and of each token, whose product is near the logit.

Which numbers, calibration says: those in which the logits of what the model really computes differ most (Shim et al.
2017, "SVD-softmax: Fast Softmax Approximation on Large Vocabulary Neural Networks"; here the singular vectors are of
weights and hidden states together, so that it is the logits' squared error that is smallest). Tokens whose looks are
within a margin of the best are computed exactly: kernels/src/compute/coarse.h.

That holds for rows like those that were seen. What the look of a row leaves out is told by a few sums of it with random
weights (Johnson and Lindenstrauss 1984), and of a row where that is more than it ever was, all logits are computed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.quantization.recipe import CoarseLook

SHARE, MULTIPLE = 1 / 2, 16
"""Of the width, so many numbers, in whole lanes."""
FEWEST_TOKENS, FEWEST_NUMBERS = 8192, 64
"""Of a smaller vocabulary or width all is looked at as fast."""
ROWS_OF_WIDTH = 4
"""Fewer hidden states for each number of the width say too little of where they lie."""
DAMPING = 0.02
"""Share of the mean variance that is added to every number's: calibration has not seen all there is."""
ROUNDING = 1e-6
"""Of the largest number's size: less is what rounding makes of none."""
MEASURED = 1 / 4
"""Share of the hidden states that the margin is measured on, by what the others say."""
SAFETY, LEAST_MARGIN, MOST_MARGIN = 1.25, 8.0, 12.0
"""The margin is so many times the largest that was needed. Where more were needed than the most, there is no look."""
KEY_BITS = (4, 8)
"""Of the numbers of a token's key, tried in this order: of 4 bits a step of one row waits for half as many bytes."""
LARGEST, STEP = 7, 0.3534
"""Of numbers of 4 bits. So many standard deviations apart they leave the smallest squared error of normally distributed
ones (Max 1960, "Quantizing for Minimum Distortion"), as kernels/src/operators/coarse_keys.h has it."""
PROBES = 32
"""Sums that tell what is left out, within an eighth."""

Numbers = NDArray[np.float64]


def find_coarse_look(
    hidden: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32]
) -> CoarseLook | None:
    """None where it would not pay.

    hidden: what the output layer gets [rows, width]; weight: [tokens, width]; bias: [tokens]
    """
    tokens, width = weight.shape
    numbers = int(width * SHARE) // MULTIPLE * MULTIPLE
    if tokens < FEWEST_TOKENS or numbers < FEWEST_NUMBERS or len(hidden) < ROWS_OF_WIDTH * width:
        return None
    rows = hidden.astype(np.float64)
    measured = np.arange(len(rows)) >= (1 - MEASURED) * len(rows)
    tried = _Directions.of(rows[~measured], weight)
    for bits in KEY_BITS:
        margin = max(LEAST_MARGIN, SAFETY * _needed_margin(tried, numbers, bits, rows[measured], weight, bias))
        if margin <= MOST_MARGIN:
            return _look(_Directions.of(rows, weight), numbers, bits, rows, margin)
    return None


def _look(found: "_Directions", numbers: int, bits: int, rows: Numbers, margin: float) -> CoarseLook:
    probes = found.probes(numbers)
    left_out = np.linalg.norm((rows - found.centre) @ probes.T, axis=1)
    return CoarseLook(
        query=np.concatenate([found.query[:numbers], probes]).astype(np.float32),
        key=found.key[:numbers].astype(np.float32),
        key_bits=bits,
        centre=found.centre.astype(np.float32),
        margin=margin,
        strange=SAFETY * float(left_out.max()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Directions:
    """All numbers that rows and tokens have, those first that tell most. The sum of their products is the logit."""

    query: Numbers
    """[width, width]"""
    key: Numbers
    """[width, width]. All numbers of keys are as large, so that few bits hold them."""
    centre: Numbers
    """[width]"""

    @classmethod
    def of(cls, hidden: Numbers, weight: NDArray[np.float32]) -> "_Directions":
        centred = weight - weight.mean(0, dtype=np.float64)
        spread = np.cov(hidden, rowvar=False)
        spread += DAMPING * np.trace(spread) / len(spread) * np.eye(len(spread))
        values, vectors = np.linalg.eigh(spread)
        root, inverse = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
        squares, directions = np.linalg.eigh(root @ (centred.T @ centred) @ root)
        first, size = directions[:, ::-1].T, np.sqrt(squares[::-1].clip(0) / len(weight))
        size = np.maximum(size, ROUNDING * (size[0] or 1))[:, None]
        return cls(size * (first @ inverse), first @ root / size, hidden.mean(0))

    def probes(self, numbers: int) -> Numbers:
        """Of a row less the centre: numbers whose norm is how far its looks are off, by the root of the mean square."""
        weights = np.random.default_rng(0).standard_normal((PROBES, len(self.centre) - numbers)) / np.sqrt(PROBES)
        probes: Numbers = weights @ self.query[numbers:]
        return probes


def _needed_margin(
    found: _Directions,
    numbers: int,
    bits: int,
    hidden: Numbers,
    weight: NDArray[np.float32],
    bias: NDArray[np.float32],
) -> float:
    """How far below the best look a best token is at most."""
    queries = (hidden - found.centre) @ found.query[:numbers].T
    keys = (weight - weight.mean(0, dtype=np.float64)) @ found.key[:numbers].T
    if bits == 4:
        keys = _in_four_bits(keys)
    looks = queries @ keys.T + (weight @ found.centre + bias)
    best = (hidden @ weight.T + bias).argmax(1)
    return float((looks.max(1) - looks[np.arange(len(looks)), best]).max())


def _in_four_bits(keys: Numbers) -> Numbers:
    """What is left of keys [tokens, numbers], each with the scale that kernels/src/operators/coarse_keys.h gives it."""
    spread, largest = np.sqrt(np.square(keys).mean(1, keepdims=True)), np.abs(keys).max(1, keepdims=True)
    scales = np.minimum(largest / LARGEST, STEP * spread).clip(np.finfo(np.float32).tiny)
    rounded: Numbers = np.rint(keys / scales).clip(-LARGEST, LARGEST) * scales
    return rounded
