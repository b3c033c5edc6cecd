"""Whether sources that are encoded together have the bits that each has alone, on this machine."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.niceness import AT_ONCE, Pace

CHECKED = (11, 3, 7, 11)
"""Tokens of the sources that are compared, once, before a decoder serves: few, since it has to be quick. Two have the
same length, which is what standard encoders take together."""

Encode = Callable[[Sequence[Sequence[int]]], Iterable[Sequence[NDArray[np.generic]]]]
"""All arrays that an encoder gives of each source, in the order of the sources."""


def same_alone(encode: Encode, vocabulary_size: int, source_capacity: int, pace: Pace = AT_ONCE) -> bool:
    """Whether all bits of a few sources, of at most so many tokens, are the same when each is encoded alone."""
    sources = [
        [(place + token) % vocabulary_size for token in range(min(length, source_capacity))]
        for place, length in enumerate(CHECKED)
    ]
    found = list[list[bytes]]()
    for each in [sources, *([source] for source in sources)]:
        with pace.piece():
            found += [_bits(arrays) for arrays in encode(each)]
    return found[: len(sources)] == found[len(sources) :]


def _bits(arrays: Sequence[NDArray[np.generic]]) -> list[bytes]:
    return [array.tobytes() for array in arrays]
