"""From queries and keys to where the tokens of a target look, to links between tokens, and to what nobody looks at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.package.declared.attention import SelfAttention

LEAST_WEIGHT = 0.02
"""Of a link: with less, a token may as well look nowhere."""


class Link(NamedTuple):
    """A target token looks at a source token."""

    source: int
    """Place of the token in the source."""
    target: int
    """Place of the token in the target."""
    weight: float
    """Share of its attention, at most 1."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Where the tokens of a target look in its source."""

    links: tuple[Link, ...] = ()
    """As the model's aligner has it, if they are wanted."""
    coverage: float = 0.0
    """See `coverage`, if it is wanted."""
    attention: NDArray[np.float32] | None = None
    """[layers, heads, target, source], if it is wanted."""


class ReadOn(NamedTuple):
    """What one stack finds in a source and what is fed for a target behind it."""

    attention: NDArray[np.float32]
    """Where each token looks among all of them [layers, heads, tokens, tokens]"""
    states: NDArray[np.float32]
    """Of each token, after the last layer [tokens, width]"""


def look(
    query: NDArray[np.float32],
    key: NDArray[np.float32],
    scale: float,
    bias: NDArray[np.float32] | float = 0.0,
) -> NDArray[np.float32]:
    """softmax(scale * query key^T + bias) over one source [heads, target, source].

    query: [target, heads * head_dim]; key: [heads, source, head_dim]
    """
    heads, _, head_dim = key.shape
    scores = query.reshape(-1, heads, head_dim).transpose(1, 0, 2) @ key.transpose(0, 2, 1) * np.float32(scale)
    scores = scores + bias
    weights = np.exp(scores - scores.max(2, keepdims=True))
    found: NDArray[np.float32] = weights / weights.sum(2, keepdims=True)
    return found


def look_within(found: Sequence[NDArray[np.float32]], outputs: SelfAttention) -> NDArray[np.float32]:
    """Where the tokens of one text look among each other, by its outputs [layers, heads, tokens, tokens]."""
    layers, tokens = len(outputs.layers), found[0].shape[1]
    queries, keys, biases = found[: 2 * layers : 2], found[1 : 2 * layers : 2], found[2 * layers :]
    later = np.triu(np.full((tokens, tokens), -np.inf if outputs.causal else 0.0, np.float32), 1)
    looked = list[NDArray[np.float32]]()
    for layer, (query, key) in enumerate(zip(queries, keys, strict=True)):
        split = key[0].reshape(tokens, outputs.heads, -1).transpose(1, 0, 2)
        bias = biases[layer % len(biases)][0] if biases else 0.0
        looked.append(look(query[0], split, outputs.scale, later + bias))
    return np.stack(looked)


def links(weights: NDArray[np.float32]) -> tuple[Link, ...]:
    """Those of a target's tokens, in their order; of each token the strongest first.

    weights: how much every token looks at every source token [target, source]
    """
    target, source = np.nonzero(weights >= LEAST_WEIGHT)
    found = weights[target, source]
    order = np.lexsort((source, -found, target))
    places = (array[order].tolist() for array in (source, target, found))
    return tuple(map(Link, *places))


def coverage(weights: NDArray[np.float32]) -> float:
    """sum(log(min(attention, 1))) over the source tokens, at most 0 (Wu et al. 2016, section 7, equation 14).

    weights: how much every target token looks at every source token [target, source]
    """
    seen = weights.sum(0)
    return float(np.log(np.minimum(seen[seen > 0], 1)).sum())
