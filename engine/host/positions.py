"""At which position each token stands of sources that lie one after another."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from models.package.declared.graphs import GraphsSpec


def joined(
    sources: Sequence[Sequence[int]], lengths: NDArray[np.int32], spec: GraphsSpec | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and positions of all tokens [tokens].

    spec: of a model that knows second sentences, whose tokens follow the first end token of a source
    """
    starts = np.cumsum(lengths) - lengths
    ids = np.fromiter(chain.from_iterable(sources), np.int64, int(lengths.sum()))
    positions = np.arange(len(ids)) - np.repeat(starts, lengths)
    if spec is not None and spec.second_positions:
        ends = ids == spec.vocabulary.end_id
        before = np.cumsum(ends) - ends
        positions = positions + spec.max_positions * (before > np.repeat(before[starts], lengths))
    return ids, positions
