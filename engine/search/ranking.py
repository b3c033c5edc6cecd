"""What a step of beam search chooses from."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.search.beam import Extension


class Step(NamedTuple):
    """Back pointers: the hypothesis that each one extends, one of the step before, and by what."""

    parents: NDArray[np.intp]
    """[searches, hypotheses]"""
    tokens: NDArray[np.int64]
    """[searches, hypotheses]"""
    costs: NDArray[np.float64]
    """-sum(log p) with that token [searches, hypotheses]"""


class Ranking:
    """The candidates of all searches, each search's by their cost."""

    def __init__(self, costs: NDArray[np.float64], tokens: NDArray[np.int64], log_probs: NDArray[np.float32]) -> None:
        """costs: -sum(log p) of the live hypotheses [searches, hypotheses], infinite where there is none.

        tokens, log_probs: the candidates of each [searches, hypotheses, candidates], best first.
        """
        searches, self._width, self._columns = tokens.shape
        self._tokens = tokens.reshape(searches, -1)
        self._costs = (costs[:, :, None] - log_probs).reshape(searches, -1)

    def best(self, searches: NDArray[np.intp]) -> Step:
        """As many of each of some searches as there may be hypotheses.

        searches: their numbers [some]
        """
        best = self._order(self._costs[searches])[:, : self._width]
        return Step(best // self._columns, self._tokens[searches[:, None], best], self._costs[searches[:, None], best])

    def charge(self, searches: NDArray[np.intp], tokens: NDArray[np.int64], penalties: NDArray[np.float64]) -> None:
        """Makes tokens dearer for some searches, each as often as it is given.

        searches: their numbers [some]; tokens: [some, any]; penalties: of each token [some, 1]
        """
        times = (self._tokens[searches, :, None] == tokens[:, None, :]).sum(2)
        self._costs[searches] += penalties * times

    def of(self, number: int, live: int) -> Iterator[Extension]:
        """All of one search with so many live hypotheses."""
        tokens, costs = self._tokens[number], self._costs[number]
        for place in self._order(costs).tolist():
            parent = place // self._columns
            if parent < live:
                yield Extension(costs.item(place), parent, tokens.item(place))

    @staticmethod
    def _order(costs: NDArray[np.float64]) -> NDArray[np.intp]:
        """Of equal ones it is the better parent's that is first, then the better token's [..., candidates]."""
        return costs.argsort(-1, kind="stable")
