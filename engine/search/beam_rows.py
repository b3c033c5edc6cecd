"""The beam searches of a running batch, which make their steps together."""

from collections.abc import Collection, Sequence
from functools import partial
from itertools import takewhile
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.decoder import NOT_FINITE, Ask, Found, Outlook
from engine.request import Hypothesis
from engine.search.banks import Banks
from engine.search.beam import BeamSearch, Extension, Past
from engine.search.extending import Beams, CompiledExtending, Ending, Extended, fastest, special_searches
from engine.search.groups import BeamGroup, Groups, results
from engine.search.paths import Paths
from engine.search.ranking import Ranking, Step
from engine.search.score import NEVER, NO_TOKEN
from engine.targets import TargetRules
from kernels.steps import Following
from models.decoding import Decoding

T = TypeVar("T", bound=np.generic)


class BeamRows:
    """Every search has a number, which is another's after it. Its live hypotheses are ordered, best first.

    The candidates of all searches are ranked at once. Where the best `num_beams` of a search simply live on, which is
    so at most steps, that is all there is to do; everywhere else its `BeamSearch` says what becomes of them. A step
    is `append`ed, and then, where it is unsettled, has something to be `settle`d.

    A search whose beams are in groups is several here, and the number of the first is its own.
    """

    def __init__(self) -> None:
        self.ask = Ask()
        """What must be seen of the rows."""
        self.parents = np.zeros(0, np.intp)
        """How the rows go on: the row that each hypothesis continues."""
        self.tokens = np.zeros(0, np.int64)
        """What each is fed."""
        self.resized: dict[int, int] = {}
        """How many hypotheses are live in the searches where they were not as many before the last step."""
        self.unsettled = False
        """`settle` has something to do."""
        self._extend = fastest()
        self._extended: Extended | None = None
        """By the step that was appended last."""
        self._searches: list[BeamSearch | None] = []
        self._counts = np.zeros(0, np.intp)
        """Live hypotheses of each search."""
        self._wanted = np.zeros(0, np.intp)
        """Those it keeps at most: none where the number is free."""
        self._special = np.zeros((0, 1), np.int64)
        """The tokens that a search does not merely append [searches, most of any search]."""
        self._careful = np.zeros(0, np.bool_)
        """Searches that may be over after any step."""
        self._ends = np.zeros(0, np.int64)
        """How many of the special tokens, the first ones, end hypotheses [searches]."""
        self._spare = np.zeros(0, np.int64)
        """Hypotheses of each search that may end without more ado."""
        self._rows = np.zeros((0, 1), np.intp)
        """Of each hypothesis [searches, hypotheses]. Some row where there is none."""
        self._costs = np.zeros((0, 1))
        """-sum(log p) of each hypothesis, infinite where there is none."""
        self._live = np.zeros((0, 1), np.bool_)
        """Where there is one."""
        self._plain = False
        """Every search has as many hypotheses as there is room for."""
        self._steady = False
        """Every search has as many hypotheses as it keeps at most."""
        self._banks = Banks()
        """Of those whose hypotheses must have some phrases."""
        self._paths = Paths()
        self._due = NEVER
        """No search is over because of its length before this step."""
        self._groups = Groups()
        self._outlook: Outlook | None = None
        """The last one, as long as it holds."""

    @property
    def outlook(self) -> Outlook | None:
        """How all hypotheses will most probably go on, where their rows are in the order of `parents`.

        None: a search is not as wide as it may become, or what it chooses from is not what the model found.
        """
        if self._outlook is None and self._steady and not (self._banks or self._groups.waves):
            never = np.unique(self._special)
            self._outlook = Outlook(self._counts[self._counts > 0], never[never != NO_TOKEN], self._costs_of_rows)
        return self._outlook

    def search(self, row: int, decoding: Decoding, rules: TargetRules) -> int:
        """Begins a search with one row. Returns its number."""
        if (groups := decoding.num_beam_groups) == 1:
            number = self._enter(BeamSearch(decoding, rules), rules)
        else:
            number, *others = (self._enter(BeamGroup(decoding, rules), rules) for _ in range(groups))
            self._groups.begin((number, *others), decoding.diversity_penalty)
        self._counts[number], self._steady = 1, False
        self._rows[number, 0], self._costs[number, 0], self._live[number, 0] = row, 0.0, True
        return number

    @property
    def orderly(self) -> bool:
        """As many rows as hypotheses, every search's side by side."""
        return self._plain and not self._groups.new

    def append(self, found: Found) -> None:
        """Makes a step of every search, which leaves `parents` and `tokens` unless something is `unsettled`."""
        if self._groups.new:
            self._share_rows()
        self._see(self._extend(found, Beams(self._rows, self._costs, self._wanted, self._special)), self._watched())

    def follow(self, following: Following, found: Found, most: int) -> int:
        """Makes up to `most` decoder steps, and steps of every search. See `engine.decoder.Goes`. If `orderly`."""
        assert isinstance(self._extend, CompiledExtending)
        watched, plain = self._watched(), self._due - self._paths.steps - 1
        ending = Ending(self._ends, self._spare, 0 if watched else plain)
        together = 1 if watched else max(1, min(most, plain + 1))
        beams = Beams(self._rows, self._costs, self._wanted, self._special)
        (*before, last), ended = self._extend.follow(following, found, beams, together, ending)
        for one in ended:
            length = self._paths.length(one.search) + one.step
            self._search(one.search).end(
                length + 1, Extension(one.cost, one.parent, one.token), self._past(one.search, length)
            )
        for extended in before:
            self._paths.go_on(extended.step)
            self._costs = extended.step.costs
        self._see(last, watched)
        return len(before) + 1

    def _past(self, number: int, length: int) -> Past:
        """Of the hypotheses of a search when they had so many tokens."""
        return Past(partial(self._paths.tokens, number, length), partial(self._paths.costs, number, length))

    def _watched(self) -> bool:
        """Every step has to be seen to."""
        # Of so few, quicker than to ask NumPy for any.
        return bool(not self._steady or 1 in self._careful.tobytes() or self._groups.waves or self._banks)

    def _see(self, extended: Extended, watched: bool) -> None:
        """Goes on with a step, unless there is something to settle."""
        self._extended = extended
        self.unsettled = bool(watched or extended.unusual or self._paths.steps + 1 >= self._due)
        if not self.unsettled:
            self.resized = {}
            self._go_on(extended.step, extended.rows)

    def settle(self, found: Found) -> dict[int, tuple[Hypothesis, ...]]:
        """Sees to what is special in the step that was appended last.

        Returns what was found by the searches that are over, whose numbers are free again. Nothing was, where the
        model's numbers are not finite.
        """
        assert self._extended is not None
        step, broken = self._extended.step, self._broken(found)
        ranking = Ranking(self._costs, found.token_ids[self._rows], found.log_probs[self._rows])
        special = {*self._extended.unusual, *self._careful.nonzero()[0].tolist()}
        if self._banks:
            numbers = self._banks.numbers
            lengths = np.array([self._paths.length(number) for number in numbers.tolist()])
            self._banks.rank(found, self._rows[numbers], self._costs[numbers], lengths)
            self._banks.choose(step)
            special |= self._to_treat(step)
        over = self._choose(ranking, step, special, broken)
        if self._banks:
            self._banks.go_on(step)
        self._go_on(step, self._rows[np.arange(len(self._rows))[:, None], step.parents])
        self.unsettled = False
        return {number: self._results(number, number in broken) for number in over}

    def _go_on(self, step: Step, rows: NDArray[np.intp]) -> None:
        """The hypotheses are those of a step, which continue these rows."""
        self._paths.go_on(step)
        self._costs = step.costs
        self.parents, self.tokens = self._of_live(rows), self._of_live(step.tokens)

    def _costs_of_rows(self) -> NDArray[np.float64]:
        return self._of_live(self._costs)

    def _of_live(self, of_all: NDArray[T]) -> NDArray[T]:
        """[searches, hypotheses] without those that there are none of: as the rows are ordered."""
        return of_all.ravel() if self._plain else of_all[self._live]

    def stay(self, fed: NDArray[np.int64]) -> None:
        """Every hypothesis goes on as it is. fed: what each row of the batch is fed next."""
        self.parents, self.resized = self._of_live(self._rows), {}
        self.tokens = fed[self.parents]

    def place(self, rows: NDArray[np.intp]) -> None:
        """They have gone on, in these rows."""
        if self._plain:
            self._rows = rows.reshape(self._live.shape)
        else:
            self._rows[:] = 0
            self._rows[self._live] = rows

    def drop(self, number: int) -> None:
        """A search leaves, whatever it has found."""
        self._leave(self._groups.end(number))

    def settled(self, number: int) -> tuple[int, ...]:
        """The tokens that every possible best result of a search begins with, so far."""
        possible = list[tuple[int, ...]]()
        for group in self._groups.of(number):
            if self._counts[group]:
                possible.append(self._paths.common(group, self._counts.item(group)))
            possible += self._search(group).possible
        return tuple(tokens[0] for tokens in takewhile(_equal, zip(*possible, strict=False)))

    def _search(self, number: int) -> BeamSearch:
        search = self._searches[number]
        assert search is not None, f"there is no search {number}"
        return search

    def _enter(self, search: BeamSearch, rules: TargetRules) -> int:
        """Gives a search a number, and no hypothesis yet."""
        number = self._searches.index(None) if None in self._searches else len(self._searches)
        self._searches[number : number + 1] = [search]
        self._paths.begin(number)
        self._fit()
        self._special[number, : len(search.special)] = search.special
        self._wanted[number] = search.num_beams
        self._careful[number] = search.careful or rules.forced_begin_id is not None
        self._ends[number], self._spare[number] = len(search.end_ids), search.spare
        self._due = min(self._due, self._paths.steps + search.last)
        return number

    def _share_rows(self) -> None:
        """All groups of a search that has not made a step extend the one hypothesis that it has."""
        for first, *others in self._groups.new:
            self._rows[others, 0], self._costs[others, 0] = self._rows[first, 0], 0.0
        self._groups.new.clear()

    def _choose(self, ranking: Ranking, step: Step, special: set[int], broken: Collection[int]) -> list[int]:
        """Mends a step where it is not the best of all candidates that live on. Returns the searches that are over.

        special: where something ends, or cannot be; broken: those of which the model's numbers are not finite
        """
        due = self._at_their_limit() if self._paths.steps + 1 >= self._due else []
        counts = self._wanted.copy()
        if broken:
            counts[list(broken)] = 0
        self._mend(step, counts, ranking, {*special, *due} - self._groups.later)
        for wave in self._groups.waves:
            wave.charge(ranking, step, self._wanted)
            self._mend(step, counts, ranking, {*self._to_treat(step), *due}.intersection(wave.numbers.tolist()))
        self.resized = {}
        over = self._resize(counts) if counts.tolist() != self._counts.tolist() else []
        if not self._plain:
            step.costs[~self._live] = np.inf
        return over

    def _mend(self, step: Step, counts: NDArray[np.intp], ranking: Ranking, searches: Collection[int]) -> None:
        """Lets some searches themselves say what becomes of their hypotheses, and how many they are."""
        for number in searches:
            if counts[number]:
                children = self._advance(number, ranking)
                counts[number] = len(children)
                chosen = children or self._search(number).chosen
                step.tokens[number, len(chosen) :] = NO_TOKEN
                for place, child in enumerate(chosen):
                    step.costs[number, place], step.parents[number, place], step.tokens[number, place] = child

    def _resize(self, counts: NDArray[np.intp]) -> list[int]:
        """Every search has so many hypotheses from now on. Returns those that are over."""
        self._outlook = None
        changed = self._groups.firsts(np.flatnonzero(counts != self._counts).tolist())
        self._wanted[counts == 0] = 0
        self._counts, self._live = counts, np.arange(self._live.shape[1]) < counts[:, None]
        self._compare_counts()
        live = {number: sum(counts[list(self._groups.of(number))].tolist()) for number in changed}
        self.resized = {number: count for number, count in live.items() if count}
        return [number for number, count in live.items() if not count]

    def _broken(self, found: Found) -> frozenset[int]:
        """Searches of which the model's numbers are not finite."""
        if NOT_FINITE not in found.token_ids[:, 0].tolist():
            return frozenset()
        rows = found.token_ids[:, 0] == NOT_FINITE
        some = self._groups.firsts(np.flatnonzero((rows[self._rows] & self._live).any(1)).tolist())
        return frozenset(group for number in some for group in self._groups.of(number))

    def _to_treat(self, step: Step) -> set[int]:
        """Searches in which something ends, cannot be, or is decided. A few others do not harm."""
        return {*special_searches(step, self._wanted, self._special), *np.flatnonzero(self._careful).tolist()}

    def _advance(self, number: int, ranking: Ranking) -> Sequence[Extension]:
        search, length = self._search(number), self._paths.length(number)
        # A group that is new is not counted yet.
        ranked = ranking.of(number, self._counts.item(number) or 1)
        if search.constrained:
            ranked = self._banks.of(number)
        children = search.advance(length + 1, ranked, self._past(number, length))
        self._careful[number], self._spare[number] = search.careful, search.spare
        return children

    def _at_their_limit(self) -> list[int]:
        due = {
            number: self._paths.begun(number) + search.last
            for number, search in enumerate(self._searches)
            if search is not None
        }
        coming = self._paths.steps + 1
        self._due = min((step for step in due.values() if step > coming), default=NEVER)
        return [number for number, step in due.items() if step == coming]

    def _results(self, number: int, broken: bool) -> tuple[Hypothesis, ...]:
        """What a search has found, which leaves."""
        groups = self._groups.end(number)
        found = () if broken else results([self._search(group) for group in groups])
        self._leave(groups)
        return found

    def _leave(self, groups: Sequence[int]) -> None:
        """Frees the numbers of a search, and forgets the steps that no search has a token of."""
        for group in groups:
            self._searches[group] = None
            self._wanted[group] = self._counts[group] = 0
            self._special[group], self._careful[group] = NO_TOKEN, False
            self._costs[group], self._live[group] = np.inf, False
        self._paths.end(groups)
        self._fit()

    def _fit(self) -> None:
        """Room for the searches there are, and no more: for as many as the last number says, as wide as the widest."""
        while self._searches and self._searches[-1] is None:
            self._searches.pop()
        searches = [search for search in self._searches if search is not None]
        count, width = len(self._searches), max((search.num_beams for search in searches), default=1)
        special = max((len(search.special) for search in searches), default=1)
        constrained = {number: one for number, one in enumerate(self._searches) if one and one.constrained}
        self._banks.fit(constrained, width)
        candidates = max((search.candidates for search in searches), default=1)
        if (self.ask.best, self.ask.named) != (candidates, bool(constrained)):
            self.ask = Ask(candidates, named=bool(constrained))
        self._counts, self._wanted = _fitted(self._counts, (count,), 0), _fitted(self._wanted, (count,), 0)
        self._careful = _fitted(self._careful, (count,), False)
        self._ends, self._spare = _fitted(self._ends, (count,), 0), _fitted(self._spare, (count,), 0)
        self._special = _fitted(self._special, (count, special), NO_TOKEN)
        self._rows = _fitted(self._rows, (count, width), 0)
        self._costs = _fitted(self._costs, (count, width), np.inf)
        self._live = _fitted(self._live, (count, width), False)
        self._outlook = None
        self._compare_counts()

    def _compare_counts(self) -> None:
        counts = self._counts.tolist()
        self._plain = counts.count(self._costs.shape[1]) == len(counts)
        self._steady = counts == self._wanted.tolist()


def _equal(tokens: Sequence[int]) -> bool:
    return len(set(tokens)) == 1


def _fitted(array: NDArray[T], shape: tuple[int, ...], empty: float) -> NDArray[T]:
    """The same in another shape: a part of it, with `empty` where it had nothing."""
    if array.shape == shape:
        return array
    fitted = np.full(shape, empty, array.dtype)
    common = tuple(slice(min(old, new)) for old, new in zip(array.shape, shape, strict=True))
    fitted[common] = array[common]
    return fitted
