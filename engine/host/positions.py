"""Sources that are encoded one after another: which ones together, and at which position each token stands."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from models.package.declared.graphs import GraphsSpec


def joined(
    sources: Sequence[Sequence[int]], spec: GraphsSpec | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and positions of all tokens [tokens].

    spec: of a model that knows second sentences, whose tokens follow the first end token of a source
    """
    ids = np.fromiter(chain.from_iterable(sources), np.int64, sum(map(len, sources)))
    none = np.zeros(0, np.int64)  # a run that only fills up has no source
    positions = np.concatenate([none, *(np.arange(len(source)) for source in sources)])
    if spec is not None and spec.second_positions:
        ends, firsts = ids == spec.vocabulary.end_id, np.flatnonzero(positions == 0)
        before = np.cumsum(ends) - ends
        positions += spec.max_positions * (before > np.repeat(before[firsts], [len(source) for source in sources]))
    return ids, positions


def runs(lengths: Sequence[int], run_tokens: int) -> Iterator[slice]:
    """Neighbours that are encoded together: as many as have at most `run_tokens` tokens, and one at least."""
    start = tokens = 0
    for index, length in enumerate(lengths):
        if index > start and tokens + length > run_tokens:
            yield slice(start, index)
            start, tokens = index, 0
        tokens += length
    if start < len(lengths):
        yield slice(start, len(lengths))
