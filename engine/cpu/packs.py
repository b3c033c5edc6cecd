"""Sources one after another, cut into packs that the packed encoder graph runs."""

from collections.abc import Iterator, Sequence

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.host.positions import joined
from models.package import signature
from models.package.declared.graphs import GraphsSpec

PACK_TOKENS = 512
"""Most tokens of a pack, but that a longer source runs alone."""
PADDING = 0.03
"""Most that attention to padding may cost, of what the products of the pack's tokens do."""


def encode_packed(
    session: ort.InferenceSession, sources: Sequence[Sequence[int]], width: int, spec: GraphsSpec | None = None
) -> Iterator[tuple[int, NDArray[np.floating]]]:
    """Index and hidden states [tokens, width] of every source, in any order.

    Attention is padded to the longest source of a pack, and no sum contains padding: how sources are packed changes no
    bit of what comes out. width: of hidden states; spec: see `engine.host.positions.joined`
    """
    for pack in packs([len(source) for source in sources], width):
        lengths = np.array([len(sources[index]) for index in pack], np.int32)
        [hidden] = session.run([signature.HIDDEN], feeds([sources[index] for index in pack], lengths, spec))
        ends = np.cumsum(lengths)
        yield from zip(pack, np.split(hidden, ends[:-1]), strict=True)


def feeds(
    sources: Sequence[Sequence[int]], lengths: NDArray[np.int32], spec: GraphsSpec | None
) -> dict[str, NDArray[np.integer]]:
    """What the graph gets of a pack."""
    ids, positions = joined(sources, spec)
    starts = np.cumsum(lengths) - lengths
    longest = int(lengths.max())
    inside = np.arange(longest) < lengths[:, None]
    padded = np.where(inside, starts[:, None] + np.arange(longest), 0)
    arrays = ids, positions, padded, np.flatnonzero(inside), lengths
    return dict(zip(signature.PACKED_ENCODER_INPUTS, arrays, strict=True))


def packs(lengths: Sequence[int], width: int) -> Iterator[list[int]]:
    """Sources that are encoded together, of like lengths: the shortest first.

    A layer has about 12 * width^2 products for a token, and 2 * width for a pair of tokens that are compared.
    """
    pack, tokens = list[int](), 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[index]
        padding = length * (len(pack) + 1) - tokens - length  # none is longer
        costs, products = padding * length, 6 * width * (tokens + length)
        if pack and (tokens + length > PACK_TOKENS or costs > PADDING * products):
            yield pack
            pack, tokens = [], 0
        pack.append(index)
        tokens += length
    if pack:
        yield pack
