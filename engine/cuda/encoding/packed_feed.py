"""What a run of the encoder for GPUs is fed, and of how many tokens runs are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.host.positions import joined

FEWEST_TOKENS = 16
"""Of a run."""


def token_buckets(most: int) -> list[int]:
    """16, 32, 64, ... and `most`, which is a power of two."""
    return [1 << power for power in range(FEWEST_TOKENS.bit_length() - 1, most.bit_length())]


def feed(sources: Sequence[Sequence[int]], lengths: NDArray[np.int32], tokens: int, pad_id: int) -> NDArray[np.uint8]:
    """The inputs of a run of so many tokens, one behind another: ids, positions, firsts and lengths.

    Tokens that fill it up are sources of their own.
    """
    fill = tokens - int(lengths.sum())
    ids, positions = joined(sources)
    of_all = np.concatenate([lengths, np.ones(fill, np.int32)])
    firsts = np.cumsum(of_all, dtype=np.int32) - of_all
    return np.concatenate(
        [
            np.concatenate([ids, np.full(fill, pad_id)]).view(np.uint8),
            np.concatenate([positions.astype(np.int32), np.zeros(fill, np.int32)]).view(np.uint8),
            np.repeat(firsts, of_all).view(np.uint8),
            np.repeat(of_all, of_all).view(np.uint8),
        ]
    )
