"""How much hypotheses have of the phrases that they must have."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.search.score import NO_TOKEN
from models.decoding import TokenIds

NOTHING = -3
"""In the place of a phrase's next token where it has none. Nothing is fed that: not even NO_TOKEN."""

Numbers = NDArray[np.intp]


class Progress(NamedTuple):
    """Of some hypotheses."""

    begun: Numbers
    """How many tokens of each phrase the hypothesis ends with [..., phrases]: the most, and never all."""
    missing: Numbers
    """How often each phrase must still be had [..., phrases]."""


class Phrases(NamedTuple):
    """Automata that find phrases in what they are shown token by token (Knuth, Morris and Pratt 1977), side by side.

    Of one search, or of several [searches, ...].
    """

    tokens: NDArray[np.int64]
    """The next token of each phrase after so many [phrases, most tokens + 1]. NOTHING behind the last."""
    fallback: Numbers
    """How many of the last of so many tokens are the first of a phrase too: not all [phrases, most tokens + 1]."""
    lengths: Numbers
    """[phrases]"""
    needed: Numbers
    """How often each must be had [phrases]."""
    places: Numbers
    """Where each phrase begins in the first two arrays, if they are flat [phrases]."""

    @property
    def most(self) -> Numbers:
        """Tokens of all phrases, each as often as it must be had."""
        most: Numbers = (self.lengths * self.needed).sum(-1)
        return most

    def start(self, hypotheses: Sequence[int]) -> Progress:
        """Of hypotheses that have no token [*hypotheses, phrases]."""
        shape = *hypotheses, self.lengths.shape[-1]
        return Progress(np.zeros(shape, np.intp), np.broadcast_to(self._beside(self.needed, len(shape)), shape).copy())

    def next(self, progress: Progress) -> NDArray[np.int64]:
        """The token that each phrase goes on with where it is missing [..., phrases]. NO_TOKEN where it is not."""
        return np.where(progress.missing > 0, self._at(self.tokens, progress.begun), NO_TOKEN)

    def follow(self, progress: Progress, tokens: NDArray[np.int64]) -> Progress:
        """After one token more of each hypothesis [...]."""
        begun, token = progress.begun, tokens[..., None]
        while True:
            strays = (self._at(self.tokens, begun) != token) & (begun > 0)
            if not strays.any():
                break
            begun = np.where(strays, self._at(self.fallback, begun), begun)
        begun = begun + (self._at(self.tokens, begun) == token)
        whole = begun == self._beside(self.lengths, begun.ndim)
        # Occurrences may overlap: the end of one may be the beginning of the next.
        begun = np.where(whole, self._at(self.fallback, begun), begun)
        return Progress(begun, np.maximum(progress.missing - whole, 0))

    def met(self, progress: Progress) -> Numbers:
        """The bank of each hypothesis: tokens of phrases that it has, of one that it has begun too [...]."""
        lengths, needed = (self._beside(array, progress.begun.ndim) for array in (self.lengths, self.needed))
        whole = ((needed - progress.missing) * lengths).sum(-1)
        begun: Numbers = np.where(progress.missing > 0, progress.begun, 0).max(-1)
        met: Numbers = whole + begun
        return met

    def _at(self, table: NDArray[np.int64], begun: Numbers) -> NDArray[np.int64]:
        """What a table has where so many tokens are begun [..., phrases]."""
        found: NDArray[np.int64] = table.ravel()[self._beside(self.places, begun.ndim) + begun]
        return found

    def _beside(self, array: Numbers, dimensions: int) -> Numbers:
        """Of several searches [searches, 1, ..., phrases], of so many dimensions."""
        return array if array.ndim == 1 else array.reshape(len(array), *(1,) * (dimensions - 2), -1)


def phrases_of(phrases: Sequence[TokenIds]) -> Phrases:
    """Those of one search. One that is given several times must be had as often."""
    counts = Counter(phrases)
    shape = len(counts), 1 + max(map(len, counts), default=0)
    tokens, fallback = np.full(shape, NOTHING, np.int64), np.zeros(shape, np.intp)
    for row, phrase in enumerate(counts):
        tokens[row, : len(phrase)] = phrase
        for place in range(2, len(phrase) + 1):
            begun = fallback[row, place - 1]
            while begun and phrase[begun] != phrase[place - 1]:
                begun = fallback[row, begun]
            fallback[row, place] = begun + (phrase[begun] == phrase[place - 1])
    lengths, needed = (np.array(list(of), np.intp) for of in (map(len, counts), counts.values()))
    return Phrases(tokens, fallback, lengths, needed, shape[1] * np.arange(shape[0]))


def side_by_side(searches: Sequence[Phrases]) -> Phrases:
    """Those of several searches: where one has fewer phrases than others, or shorter ones, there is nothing to have."""
    count, most = (max(one.tokens.shape[axis] for one in searches) for axis in (0, 1))

    def stacked(arrays: Sequence[NDArray[np.int64]], nothing: int) -> NDArray[np.int64]:
        shape = (len(arrays), count, most)[: 1 + arrays[0].ndim]
        together = np.full(shape, nothing, np.int64)
        for search, array in enumerate(arrays):
            place: tuple[int | slice, ...] = search, *map(slice, array.shape)
            together[place] = array
        return together

    tokens, fallback, lengths, needed, _ = zip(*searches, strict=True)
    places = most * np.arange(len(searches) * count).reshape(-1, count)
    return Phrases(stacked(tokens, NOTHING), stacked(fallback, 0), stacked(lengths, -1), stacked(needed, 0), places)
