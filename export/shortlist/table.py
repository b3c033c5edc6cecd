"""Counts which target tokens a source token becomes, and keeps the most frequent ones of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.shortlist.align import Pair
from models.package.declared.graphs import Vocabulary
from models.package.shortlist import Shortlist

WAITING = 1 << 20
"""Token pairs that are counted together."""


@dataclass(frozen=True)
class ListSize:
    """How long lists are."""

    first: int
    """So many tokens of the vocabulary, which begins with the most frequent ones, are always allowed."""
    best: int
    """Most tokens of a list."""


class Counts:
    """How often each target token was aligned to each source token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._keys, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._waiting: list[NDArray[np.int64]] = []

    def add(self, aligned: NDArray[np.int64]) -> None:
        """Counts token pairs [2, tokens]."""
        source, target = aligned
        self._waiting.append(source * self._vocabulary.target_size + target)
        if sum(map(len, self._waiting)) > WAITING:
            self._merge()

    def shortlist(self, size: ListSize) -> Shortlist:
        """The most frequent target tokens of each source token, besides those that are allowed anyway."""
        self._merge()
        source, target = np.divmod(self._keys, self._vocabulary.target_size)
        counted = (target >= size.first) & (target != self._vocabulary.end_id)
        if self._vocabulary.shared:
            counted &= source != target
        order = np.lexsort((target, -self._counts, source))
        order = order[counted[order]]
        source, target = source[order], target[order]
        rank = np.arange(len(source)) - np.searchsorted(source, source)
        source, target = source[rank < size.best], target[rank < size.best]
        offsets = np.searchsorted(source, np.arange(self._vocabulary.source_size + 1))
        return Shortlist(self._vocabulary, size.first, size.best, offsets.astype(np.int64), target)

    def _merge(self) -> None:
        """Counts what waits."""
        keys = np.concatenate([self._keys, *self._waiting])
        counts = np.concatenate([self._counts, np.ones(len(keys) - len(self._counts), np.int64)])
        self._keys, places = np.unique(keys, return_inverse=True)
        self._counts = np.bincount(places, counts, len(self._keys)).astype(np.int64)
        self._waiting = []


@dataclass(frozen=True)
class Coverage:
    """What a shortlist allows of targets that it was not counted over."""

    tokens: float
    """Share of the target tokens that are allowed."""
    sentences: float
    """Share of the targets whose tokens all are."""
    allowed: float
    """Tokens that a source allows, the median."""


def coverage(shortlist: Shortlist, pairs: Sequence[Pair]) -> Coverage:
    """Of pairs, of which there must be one."""
    found, sizes = [], []
    for source, target in pairs:
        allowed = shortlist.allowed(source)
        found.append(np.isin(target, allowed))
        sizes.append(len(allowed))
    whole = float(np.mean([tokens.all() for tokens in found]))
    return Coverage(float(np.concatenate(found).mean()), whole, float(np.median(sizes)))
