"""Diverse beam search (Vijayakumar et al. 2016, "Diverse Beam Search", algorithm 1).

The beams of a search are so many groups, each a beam search of its own. At every step they choose one after another: a
token costs a group `diversity_penalty` for each time that the groups before it have just chosen it (Hamming diversity,
section 4.2). What a group has paid is part of its scores.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.request import FinishReason, Hypothesis
from engine.search.beam import BeamSearch, Extension, Past
from engine.search.ranking import Ranking, Step
from engine.search.score import NO_TOKEN
from engine.targets import TargetRules
from models.decoding import Decoding


class BeamGroup(BeamSearch):
    """One group of a search.

    It ends as groups do in Hugging Face (`BeamSearchScorer`), which is not quite as beam search does there today: a
    step is worth what its best extension promises, even if that ends, and the last step is like those before.
    """

    def __init__(self, decoding: Decoding, rules: TargetRules) -> None:
        super().__init__(decoding, rules)
        self._best: list[Extension] = []
        """The best extension of the step, if there is one."""
        self._chosen: list[Extension] = []

    @property
    def chosen(self) -> Sequence[Extension]:
        """The groups behind it pay for that too."""
        return self._chosen

    def advance(self, steps: int, ranked: Iterable[Extension], past: Past) -> Sequence[Extension]:
        children = super().advance(steps, ranked, past)
        if steps < self._decoding.max_new_tokens:
            return children
        for extension in children:
            self._end(steps, extension, past, FinishReason.LENGTH)
        return ()

    def _extend(self, steps: int, ranked: Iterable[Extension], past: Past) -> list[Extension]:
        allowed = list(islice(self._allowed(steps, ranked), 2 * self.num_beams))
        self._best = allowed[:1]
        ended = [(extension, self._reason(extension, past)) for extension in allowed]
        for extension, reason in ended[: self.num_beams]:
            if reason is not FinishReason.LENGTH:
                self._end(steps, extension, past, reason)
        self._chosen = [extension for extension, reason in ended if reason is FinishReason.LENGTH][: self.num_beams]
        return self._chosen

    def _is_worthwhile(self, steps: int, live: Sequence[Extension]) -> bool:
        return super()._is_worthwhile(steps, self._best if live else ())


class Wave(NamedTuple):
    """The groups of a batch that choose at once: of each search the second one, say."""

    numbers: NDArray[np.intp]
    """[groups]"""
    before: NDArray[np.intp]
    """The groups that have chosen before each [groups, before]."""
    penalties: NDArray[np.float64]
    """[groups, 1]"""

    def charge(self, ranking: Ranking, step: Step, sizes: NDArray[np.intp]) -> None:
        """Has them pay for what was chosen before them, and choose.

        sizes: of the groups [searches], 0 of those that are over
        """
        there = np.arange(step.tokens.shape[1]) < sizes[self.before, None]
        chosen = np.where(there, step.tokens[self.before], NO_TOKEN)
        ranking.charge(self.numbers, chosen.reshape(len(self.numbers), -1), self.penalties)
        for part, mended in zip(step, ranking.best(self.numbers), strict=True):
            part[self.numbers] = mended


class Groups:
    """Which of a batch's beam searches are groups of one, and in which order they choose."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, ...]] = {}
        """The numbers of a search's groups, by the first."""
        self._first: dict[int, int] = {}
        """The first group of the search that each belongs to."""
        self._penalties: dict[int, float] = {}
        """By the first."""
        self.new: list[tuple[int, ...]] = []
        """Those of searches that have not made a step."""
        self.waves: list[Wave] = []
        """All but the first groups, which choose with those that are not in groups."""
        self.later: frozenset[int] = frozenset()
        """The same."""

    def begin(self, numbers: tuple[int, ...], penalty: float) -> None:
        """A search begins, whose groups have these numbers."""
        first = numbers[0]
        self._of[first], self._penalties[first] = numbers, penalty
        self._first |= dict.fromkeys(numbers, first)
        self.new.append(numbers)
        self._order()

    def end(self, first: int) -> tuple[int, ...]:
        """A search leaves. Returns its groups' numbers."""
        if first not in self._of:
            return (first,)
        numbers = self._of.pop(first)
        for number in numbers:
            del self._first[number]
        self.new = [new for new in self.new if new is not numbers]
        self._order()
        return numbers

    def of(self, first: int) -> tuple[int, ...]:
        """The numbers of a search: itself, if its beams are in no groups."""
        return self._of.get(first, (first,))

    def firsts(self, numbers: Iterable[int]) -> list[int]:
        """The searches that have these numbers."""
        return list({self._first.get(number, number): None for number in numbers})

    def _order(self) -> None:
        self.waves = []
        for place in range(1, max(map(len, self._of.values()), default=1)):
            some = {first: numbers for first, numbers in self._of.items() if place < len(numbers)}
            penalties = np.array([self._penalties[first] for first in some])[:, None]
            before = np.array([numbers[:place] for numbers in some.values()])
            self.waves.append(Wave(np.array([numbers[place] for numbers in some.values()]), before, penalties))
        self.later = frozenset(number for numbers in self._of.values() for number in numbers[1:])


def results(groups: Sequence[BeamSearch]) -> tuple[Hypothesis, ...]:
    """Of a search that is over, best first: of all its groups together."""
    found = chain.from_iterable(((one, group) for one in group.finished) for group in groups)
    best = sorted(found, key=lambda pair: -pair[0].score)[: groups[0].returned]
    return tuple(group.hypothesis(one) for one, group in best)
