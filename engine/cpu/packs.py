"""Sources one after another, cut into packs that the packed encoder graph runs."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from models.package import signature

PACK_TOKENS = 512
"""Most tokens of a pack, but that a longer source runs alone."""
PADDING = 0.3
"""Most of a pack's attention that may be padding."""


def encode_packed(
    session: ort.InferenceSession, sources: Sequence[Sequence[int]]
) -> Iterator[tuple[int, NDArray[np.floating]]]:
    """Index and hidden states [tokens, width] of every source, in any order.

    Attention is padded to the longest source of a pack, and no sum contains padding: how sources are packed changes no
    bit of what comes out.
    """
    for pack in packs([len(source) for source in sources]):
        lengths = np.array([len(sources[index]) for index in pack], np.int32)
        [hidden] = session.run([signature.HIDDEN], feeds([sources[index] for index in pack], lengths))
        ends = np.cumsum(lengths)
        yield from zip(pack, np.split(hidden, ends[:-1]), strict=True)


def feeds(sources: Sequence[Sequence[int]], lengths: NDArray[np.int32]) -> dict[str, NDArray[np.integer]]:
    """What the graph gets of a pack."""
    starts = np.cumsum(lengths) - lengths
    ids = np.fromiter(chain.from_iterable(sources), np.int64, int(lengths.sum()))
    positions = np.arange(len(ids)) - np.repeat(starts, lengths)
    longest = int(lengths.max())
    inside = np.arange(longest) < lengths[:, None]
    padded = np.where(inside, starts[:, None] + np.arange(longest), 0)
    arrays = ids, positions, padded, np.flatnonzero(inside), lengths
    return dict(zip(signature.PACKED_ENCODER_INPUTS, arrays, strict=True))


def packs(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Sources that are encoded together, of like lengths: the shortest first."""
    pack, tokens = list[int](), 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[index]
        whole = length * (len(pack) + 1)  # with padding: none is longer
        if pack and (tokens + length > PACK_TOKENS or whole - tokens - length > PADDING * whole):
            yield pack
            pack, tokens = [], 0
        pack.append(index)
        tokens += length
    if pack:
        yield pack
