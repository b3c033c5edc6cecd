"""What is drawn of a row whose best tokens alone are known.

The noise picks a place in the sum of all weights, best token first. How much the other tokens weigh is known within
bounds: each weighs no more than the least of those that are known, all together have what is left of the probability.
If the place is that of the same token by the least and by the largest sum, it is drawn whatever the others are. Where
it is not, more of the row has to be looked at.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.processors.sampling import Numbers, Sampling

UNDECIDED = -1
"""In the place of a column."""
ANY = 1e300
"""In the place of an upper bound where there is none."""
ROUNDING = 1e-4
"""Weights differ by so much at most, relative, with what else a row was computed with."""


class Known(NamedTuple):
    """What is known of rows."""

    scores: Numbers
    """Log-probabilities after the processors, best first [rows, tokens]."""
    least: Numbers
    """No other token has more [rows]. What has less may be behind others."""
    others: Numbers
    """The probability of all others before the processors, which only lower it [rows]."""
    error: float
    """So far that may be off."""
    lowered: bool
    """The processors may have lowered any of the others."""
    barred: Numbers
    """So many of the others may be barred [rows]."""


def draw_of_known(sampling: Sampling, known: Known, noise: Numbers) -> NDArray[np.intp]:
    """The column of each row that is drawn, if that is certain [rows]. noise: from 0 to 1, of each row.

    For samplings that are `bounded`.
    """
    weights, sure, each, (fewest, most) = _weights(sampling, known)
    sums = np.cumsum(weights, 1)
    sure_sum = sums[:, -1]
    least, largest = (sure_sum + fewest) * (1 - ROUNDING), (sure_sum + most) * (1 + ROUNDING)
    if sampling.top_p < 1:
        (low, low_ends), (high, high_ends) = (_nucleus(sampling.top_p, weights, sums, all) for all in (least, largest))
        least = np.where(low_ends, low, np.maximum(sure_sum, sampling.top_p * least))
        largest = np.where(high_ends, high, np.minimum(sampling.top_p * largest + each, largest))
    if sampling.min_p > 0:
        low, high = (
            np.where(weights >= share * weights[:, :1], weights, 0).sum(1)
            for share in (sampling.min_p * (1 + ROUNDING), sampling.min_p * (1 - ROUNDING))
        )
        least = np.minimum(least, low)
        others_stay = each >= sampling.min_p * (1 - ROUNDING) * weights[:, 0]
        largest = np.where(others_stay, largest, np.minimum(largest, high))
    first, last = (
        (sums <= (noise * place)[:, None]).sum(1) for place in (least * (1 - ROUNDING), largest * (1 + ROUNDING))
    )
    columns: NDArray[np.intp] = np.where((first == last) & (last < sure), first, UNDECIDED)
    return columns


def _weights(sampling: Sampling, known: Known) -> tuple[Numbers, NDArray[np.intp], Numbers, tuple[Numbers, Numbers]]:
    """Of tokens that nothing can stand before, and 0s; how many these are; of any other; of all others, bounds."""
    power = 1 / sampling.temperature
    weights, each = np.exp(known.scores * power), np.exp(known.least * power)
    is_sure = known.scores >= known.least[:, None]
    behind = np.where(is_sure, 0, weights).sum(1)
    weights = np.where(is_sure, weights, 0)
    if sampling.top_k:
        weights[:, sampling.top_k :] = 0
        is_sure[:, sampling.top_k :] = False
    sure = is_sure.sum(1)
    most = np.full(len(sure), ANY)
    if power >= 1:  # the sum of w^power is at most that of w, times the largest w^(power - 1)
        largest = np.exp(known.least * (power - 1)) if power > 1 else 1.0
        most = np.where(each > 0, (known.others + known.error) * largest, 0) + behind
    fewest = np.zeros(len(sure))
    if sampling.top_k:
        most = np.minimum(most, (sampling.top_k - sure) * each)
    elif power == 1 and not known.lowered:
        fewest = np.maximum(known.others - known.error - known.barred * each, 0)
    return weights, sure, each, (fewest, np.maximum(most, fewest))


def _nucleus(top_p: float, weights: Numbers, sums: Numbers, total: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    """The sum of the tokens that `top_p` leaves where all weigh so much [rows], and whether there are no others."""
    before, bound = sums - weights, top_p * total
    before[:, 0] = -1  # the best token stays
    return np.where(before < bound[:, None], weights, 0).sum(1), sums[:, -1] >= bound
