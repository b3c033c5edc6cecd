"""Beams whose hypotheses must have some phrases: dynamic beam allocation (Post and Vilar 2018; Hu et al. 2019).

Hypotheses that have as many tokens of the phrases are a bank. A step looks at more than the best extensions: at those
by the next token of each phrase too, however improbable. Then the places of the beam are shared among the banks, the
best of each bank first. So phrases are begun that the model would not begin, and what has them is not thrown out by
what has not. A hypothesis ends only once it has all of them.

Where there are more banks than places, the papers prefer those that have most, which puts the phrases at the beginning
of a target. Here it is those that promise most, and a hypothesis that the model would end without all phrases comes
last: docs/decisions/0026-phrases-have-banks.md has what that is worth.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Found
from engine.search.beam import BeamSearch, Extension
from engine.search.phrases import Progress, phrases_of, side_by_side
from engine.search.ranking import Step
from engine.search.score import NO_TOKEN

T = TypeVar("T", bound=np.generic)

TOKEN_COST = 4.0
"""-log p that a missing token of a phrase is expected to have."""


class Banks:
    """The searches with phrases among those of a running batch, which rank their extensions together."""

    def __init__(self) -> None:
        self._searches: dict[int, BeamSearch] = {}
        """By their numbers."""
        self.numbers = np.zeros(0, np.intp)
        """The same, in the order of all arrays here."""
        self._phrases = phrases_of(())
        self._progress = self._phrases.start((0, 0))
        """[searches, hypotheses, phrases]"""
        self._ends = self._suppressed = np.zeros((0, 1), np.int64)
        """[searches, most of any search]"""
        self._min_tokens = self._last = np.zeros(0, np.intp)
        """Tokens before an end token, and before the search is over [searches]."""
        self._beams = np.zeros(0, np.intp)
        """Places of each search's beam [searches]."""
        self._candidates = np.zeros(0, np.intp)
        """Of each hypothesis, the best tokens that its search asks for alone [searches]."""
        self._columns = 1
        """Candidates of each hypothesis, with those by phrases."""
        self._tokens = np.zeros((0, 1), np.int64)
        self._costs = np.zeros((0, 1))
        self._hopeless = np.zeros((0, 1), np.bool_)
        """Those that have not all phrases at the end of the last step."""
        self._order = np.zeros((0, 1), np.intp)
        """Places among all extensions [searches, hypotheses * columns], the best first."""

    def __bool__(self) -> bool:
        return bool(self._searches)

    def fit(self, searches: Mapping[int, BeamSearch], width: int) -> None:
        """There are these searches with phrases, by their numbers, each of so many hypotheses at most."""
        old = {search: place for place, search in enumerate(self._searches.values())}
        self._searches, self.numbers = dict(searches), np.array(list(searches), np.intp)
        if not searches:
            return
        before, of = self._progress, [search.phrases for search in searches.values()]
        self._phrases = side_by_side(of)
        self._progress = self._phrases.start((len(of), width))
        for place, search in enumerate(searches.values()):
            phrases = len(of[place].lengths)
            known = search.begun if search not in old else [array[old[search], :width, :phrases] for array in before]
            for array, kept in zip(self._progress, known, strict=True):
                array[place, : len(kept) if kept.ndim > 1 else width, :phrases] = kept
        self._ends = _padded([one.end_ids for one in searches.values()])
        self._suppressed = _padded([one.suppressed for one in searches.values()])
        self._min_tokens = np.array([one.min_tokens for one in searches.values()])
        self._last = np.array([one.last for one in searches.values()])
        self._beams = np.array([one.num_beams for one in searches.values()])
        self._candidates = np.array([one.candidates for one in searches.values()])

    def rank(self, found: Found, rows: NDArray[np.intp], costs: NDArray[np.float64], lengths: NDArray[np.intp]) -> None:
        """Looks at a step of all searches.

        rows, costs: of the hypotheses [searches, hypotheses]; a cost is infinite where there is none
        lengths: tokens of each hypothesis [searches]
        """
        wanted = self._phrases.next(self._progress)
        # No more than are found of the search alone: what is looked at, and so the last bit, is the same in any batch.
        own = np.arange(found.token_ids.shape[1]) < self._candidates[:, None, None]
        known, of_known = np.where(own, found.token_ids[rows], NO_TOKEN), np.where(own, found.log_probs[rows], -np.inf)
        tokens = np.concatenate((known, wanted), -1)
        log_probs = np.concatenate((of_known, _log_probs(found, rows, wanted, np.isfinite(costs))), -1)
        log_probs[..., known.shape[-1] :][_repeated(wanted, known)] = -np.inf
        met = self._phrases.met(self._progress)
        beside = Progress(*(array[:, :, None] for array in self._progress))
        met_then = self._phrases.met(self._phrases.follow(beside, tokens))
        missing = self._phrases.most[:, None, None] - met_then
        ends, barred = _among(tokens, self._ends), _among(tokens, self._suppressed)
        barred |= ends & ((missing > 0) | (lengths < self._min_tokens)[:, None, None])
        costs = np.where(barred, np.inf, costs[..., None] - log_probs)
        room = (self._last - lengths - 1)[:, None, None]
        # What the model would end, but may not, seldom becomes good: unless it has a phrase now, others come first.
        unwilling = ends[..., :1] & (missing[..., :1] > 0) & (met_then <= met[..., None])
        self._hopeless = _flat((missing > room) & (room <= 0))
        self._columns, self._tokens, self._costs = tokens.shape[-1], _flat(tokens), _flat(costs)
        later = _flat(np.isinf(costs) * 2 + ((missing > room) | unwilling))
        expected = self._costs + TOKEN_COST * _flat(missing)
        rank = _rank_within(_flat(missing) + later * (1 + missing.max()), self._costs)
        self._order = np.lexsort((expected, rank, later))

    def choose(self, step: Step) -> None:
        """Makes a step of each search that of the extensions which get places, by their cost, whatever ends."""
        best = self._order[:, : step.tokens.shape[1]]
        searches, places = np.arange(len(best))[:, None], np.arange(best.shape[1])
        order = np.lexsort((self._costs[searches, best], places >= self._beams[:, None]))
        best = best[searches, order]
        step.parents[self.numbers] = best // self._columns
        step.tokens[self.numbers], step.costs[self.numbers] = self._tokens[searches, best], self._costs[searches, best]

    def of(self, number: int) -> Iterator[Extension]:
        """The extensions of a search in the order in which they get places.

        One that has not all phrases at the end of the last step is no hypothesis, unless there is no other.
        """
        place = list(self._searches).index(number)
        costs, tokens, hopeless = self._costs[place], self._tokens[place], self._hopeless[place]
        others = bool(self._searches[number].finished) or not hopeless[self._order[place, 0]]
        for candidate in self._order[place].tolist():
            if costs[candidate] == np.inf or (hopeless[candidate] and others):
                return
            yield Extension(costs.item(candidate), candidate // self._columns, tokens.item(candidate))

    def go_on(self, step: Step) -> None:
        """The hypotheses of all searches are those of a step."""
        parents, tokens = step.parents[self.numbers], step.tokens[self.numbers]
        of_parents = Progress(*(np.take_along_axis(array, parents[..., None], 1) for array in self._progress))
        self._progress = self._phrases.follow(of_parents, tokens)


def _log_probs(
    found: Found, rows: NDArray[np.intp], tokens: NDArray[np.int64], live: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Of some tokens of each live row [..., tokens]. -inf where there is none."""
    log_probs = np.full(tokens.shape, -np.inf, np.float32)
    looking = live & (tokens != NO_TOKEN).any(-1)
    if looking.any():
        assert found.named is not None
        with np.errstate(invalid="ignore"):
            scores = found.named(rows[looking], tokens[looking])
        log_probs[looking] = np.where(np.isnan(scores), -np.inf, scores)
    return log_probs


def _repeated(wanted: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a token that is wanted is known already, or wanted before [..., wanted]."""
    before = np.tri(wanted.shape[-1], k=-1, dtype=np.bool_)
    twice = ((wanted[..., :, None] == wanted[..., None, :]) & before).any(-1)
    repeated: NDArray[np.bool_] = twice | (wanted[..., :, None] == known[..., None, :]).any(-1)
    return repeated


def _among(tokens: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where tokens [searches, ...] are among the ids of their search [searches, ids]."""
    between = (1,) * (tokens.ndim - 1)
    among: NDArray[np.bool_] = (tokens[..., None] == ids.reshape(len(ids), *between, -1)).any(-1)
    return among


def _rank_within(groups: NDArray[np.intp], costs: NDArray[np.float64]) -> NDArray[np.intp]:
    """How many of the same group, and row, cost less [rows, some]."""
    order, columns = np.lexsort((costs, groups)), np.arange(groups.shape[1])
    ordered = np.take_along_axis(groups, order, 1)
    begins = np.where(np.diff(ordered, axis=1, prepend=-1) != 0, columns, 0)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, columns - np.maximum.accumulate(begins, 1), 1)
    return ranks


def _flat(array: NDArray[T]) -> NDArray[T]:
    """[searches, hypotheses, columns] -> [searches, hypotheses * columns]."""
    return array.reshape(len(array), -1)


def _padded(ids: Sequence[Collection[int]]) -> NDArray[np.int64]:
    padded = np.full((len(ids), max(1, *map(len, ids))), NO_TOKEN, np.int64)
    for row, of_row in enumerate(ids):
        padded[row, : len(of_row)] = list(of_row)
    return padded
