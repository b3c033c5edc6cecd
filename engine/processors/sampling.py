"""Drawing the next token instead of taking the best one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.decoding import Decoding

MOST_KNOWN = 8
"""Best tokens that are asked for to draw from. Of sampled sentences of FLORES, 1 step in 160 wants to know more with
`top_p` 0.9, and 1 in 40 without it; 16 tokens instead leave three quarters of these, and take 5 % of a step."""

ENTROPY_TOKENS = 100
"""Best tokens that `top_h` looks at, as in Hugging Face."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sampling:
    """From which tokens one is drawn, and how likely. Names and order of Hugging Face's options."""

    temperature: float
    top_k: int
    """0: all tokens."""
    top_p: float
    min_p: float
    top_h: float
    """0: all tokens."""
    typical_p: float
    epsilon_cutoff: float
    eta_cutoff: float

    @classmethod
    def of(cls, decoding: Decoding) -> "Sampling | None":
        """None: nothing is drawn."""
        if not decoding.do_sample:
            return None
        return cls(
            decoding.temperature,
            decoding.top_k,
            decoding.top_p,
            decoding.min_p,
            decoding.top_h,
            decoding.typical_p,
            decoding.epsilon_cutoff,
            decoding.eta_cutoff,
        )

    @property
    def bounded(self) -> bool:
        """What is kept is the best tokens whose sum is large enough, or that are likely enough beside the best one."""
        return (self.top_h, self.typical_p, self.epsilon_cutoff, self.eta_cutoff) == (0, 1, 0, 0)

    @property
    def known(self) -> int:
        """How many best tokens are worth asking for. 0: whole rows are looked at."""
        if self.bounded:
            return MOST_KNOWN
        return self.wanted if self.wanted <= MOST_KNOWN else 0

    @property
    def wanted(self) -> int:
        """Of how many best tokens the probabilities are to be known. 0: all."""
        return ENTROPY_TOKENS if self.top_h > 0 else self.top_k

    def probabilities(self, scores: NDArray[np.float32]) -> Numbers:
        """Of tokens with these scores, as many as are `wanted` [rows, tokens], best first."""
        kept = scores.astype(np.float64) / self.temperature
        if self.top_h > 0:
            _cut(kept, _beyond_entropy(softmax(kept), self.top_h))
            kept[:, self.top_k or kept.shape[1] :] = -np.inf
        if self.top_p < 1:
            # What is left from a token on, itself included, must be more than what may be cut off.
            _cut(kept, np.cumsum(softmax(kept)[:, ::-1], 1)[:, ::-1] <= 1 - self.top_p)
        if self.min_p > 0:
            found = softmax(kept)
            _cut(kept, found < self.min_p * found[:, :1])
        if self.typical_p < 1:
            kept[_untypical(softmax(kept), self.typical_p)] = -np.inf
        if self.epsilon_cutoff > 0:
            _cut(kept, softmax(kept) < self.epsilon_cutoff)
        if self.eta_cutoff > 0:
            found = softmax(kept)
            least = np.sqrt(self.eta_cutoff) * np.exp(-_entropy(found))
            _cut(kept, found < np.minimum(self.eta_cutoff, least))
        return softmax(kept)


def draw(probabilities: Numbers, noise: Numbers) -> NDArray[np.intp]:
    """The column of each row that is drawn [rows]. noise: from 0 to 1, of each row."""
    sums = np.cumsum(probabilities, 1)
    columns: NDArray[np.intp] = (sums <= (noise * sums[:, -1])[:, None]).sum(1)
    return columns


def softmax(scores: Numbers) -> Numbers:
    """[rows, tokens]; a score of -inf is a probability of 0."""
    powers = np.exp(scores - scores.max(1, keepdims=True))
    shares: Numbers = powers / powers.sum(1, keepdims=True)
    return shares


def _cut(scores: Numbers, cut: NDArray[np.bool_]) -> None:
    """The best token stays."""
    scores[cut & (scores < scores.max(1, keepdims=True))] = -np.inf


def _beyond_entropy(probabilities: Numbers, share: float) -> NDArray[np.bool_]:
    """Those that are not needed for so much of the entropy (Baghaei Potraghloo et al. 2025, algorithm 1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        told = np.where(probabilities > 0, -probabilities * np.log(probabilities), 0.0)
    beyond: NDArray[np.bool_] = np.cumsum(told, 1) > share * told.sum(1, keepdims=True)
    return beyond


def _untypical(probabilities: Numbers, mass: float) -> NDArray[np.bool_]:
    """Those that tell much more or much less than is to be expected (Meister et al. 2023, section 4)."""
    with np.errstate(divide="ignore"):
        off = np.abs(-np.log(probabilities) - _entropy(probabilities))
    order = np.argsort(off, 1, kind="stable")
    last = (np.cumsum(np.take_along_axis(probabilities, order, 1), 1) < mass).sum(1, keepdims=True)
    last = np.take_along_axis(order, np.minimum(last, probabilities.shape[1] - 1), 1)
    return off > np.take_along_axis(off, last, 1)


def _entropy(probabilities: Numbers) -> Numbers:
    """In nats [rows, 1]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        told = np.where(probabilities > 0, probabilities * np.log(probabilities), 0.0)
    entropy: Numbers = -told.sum(1, keepdims=True)
    return entropy
