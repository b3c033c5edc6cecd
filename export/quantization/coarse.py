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
MEASURED = 1 / 4
"""Share of the hidden states that the margin is measured on, by what the others say."""
SAFETY, LEAST_MARGIN, MOST_MARGIN = 1.25, 8.0, 12.0
"""The margin is so many times the largest that was needed. Where more were needed than the most, there is no look."""
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
    needed = _needed_margin(_Directions.of(rows[~measured], weight), numbers, rows[measured], weight, bias)
    margin = max(LEAST_MARGIN, SAFETY * needed)
    if margin > MOST_MARGIN:
        return None
    found = _Directions.of(rows, weight)
    probes = found.probes(numbers)
    left_out = np.linalg.norm((rows - found.centre) @ probes.T, axis=1)
    return CoarseLook(
        query=np.concatenate([found.query[:numbers], probes]).astype(np.float32),
        key=found.key[:numbers].astype(np.float32),
        centre=found.centre.astype(np.float32),
        margin=margin,
        strange=SAFETY * float(left_out.max()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Directions:
    """All numbers that rows and tokens have, those first that tell most. The sum of their products is the logit."""

    query: Numbers
    """[width, width], of unit variance in each number."""
    key: Numbers
    """[width, width]"""
    centre: Numbers
    """[width]"""
    importance: Numbers
    """Mean square of the keys [width]."""

    @classmethod
    def of(cls, hidden: Numbers, weight: NDArray[np.float32]) -> "_Directions":
        centred = weight - weight.mean(0, dtype=np.float64)
        spread = np.cov(hidden, rowvar=False)
        spread += DAMPING * np.trace(spread) / len(spread) * np.eye(len(spread))
        values, vectors = np.linalg.eigh(spread)
        root, inverse = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
        squares, directions = np.linalg.eigh(root @ (centred.T @ centred) @ root)
        first = directions[:, ::-1].T
        return cls(first @ inverse, first @ root, hidden.mean(0), squares[::-1] / len(weight))

    def probes(self, numbers: int) -> Numbers:
        """Of a row less the centre: numbers whose norm is how far its looks are off, by the root of the mean square."""
        weights = np.random.default_rng(0).standard_normal((PROBES, len(self.centre) - numbers)) / np.sqrt(PROBES)
        left_out: Numbers = np.sqrt(self.importance[numbers:, None]) * self.query[numbers:]
        probes: Numbers = weights @ left_out
        return probes


def _needed_margin(
    found: _Directions, numbers: int, hidden: Numbers, weight: NDArray[np.float32], bias: NDArray[np.float32]
) -> float:
    """How far below the best look a best token is at most."""
    queries = (hidden - found.centre) @ found.query[:numbers].T
    keys = (weight - weight.mean(0, dtype=np.float64)) @ found.key[:numbers].T
    looks = queries @ keys.T + (weight @ found.centre + bias)
    best = (hidden @ weight.T + bias).argmax(1)
    return float((looks.max(1) - looks[np.arange(len(looks)), best]).max())
