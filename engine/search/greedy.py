"""Greedy search: the best token of every step, of all rows of a running batch at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.decoder import NOT_FINITE, Ask, Found
from engine.request import FinishReason, Hypothesis
from engine.search.score import NEVER, NO_TOKEN, finish_reason, free_tokens, score
from engine.targets import TargetRules
from kernels.steps import BestSteps, Following
from models.decoding import Decoding

NOTHING = -2
"""In the place of its first token: an alternative begins too improbably to be one."""
IMPOSSIBLE = -1000.0
"""A log-probability that a token has only where fewer are allowed than are asked for."""
STEPS = 64
"""That there is room for at first."""

T = TypeVar("T", bound=np.generic)


@dataclass(slots=True, eq=False)
class GreedySearch:
    """The greedy search of one row. No step touches it, but one that ends it or proposes a token that it cannot have.

    The length penalty decides nothing here, but the score has it too.
    """

    decoding: Decoding
    rules: TargetRules
    start: int
    """The step that chooses its first token."""
    last: int
    """The step after which it is over at the latest: one is made even if there is nothing to choose."""
    rank: int = 0
    """Of its first token, among those that it can have. Later ones are the best."""

    def hypothesis(self, tokens: list[int], log_probs: list[float]) -> Hypothesis:
        """The result, without tokens where there is no such alternative.

        The tokens that were chosen, and their log-probabilities.
        """
        rules, free = self.rules, free_tokens(self.decoding, self.rules)
        if tokens[0] == NOTHING or (self.rank and not free):
            return Hypothesis((), 0.0, FinishReason.LENGTH)
        del tokens[free:], log_probs[free:]
        reason = finish_reason(tokens, rules)
        if reason is FinishReason.LENGTH and rules.forced_end_id is not None:
            tokens.append(rules.forced_end_id)
            log_probs.append(0.0)
        total, told = fsum(log_probs), tuple(log_probs) if self.decoding.with_tokens else ()
        value = score(total, len(tokens), self.decoding.length_penalty)
        return Hypothesis(tuple(tokens), value, reason, told, log_prob=total)


class GreedyRows:
    """What the rows of a running batch are fed: each its best token, unless somebody has it fed another.

    A step costs the same whether a row or all rows are searched. Rows that are not go on for ever.
    """

    def __init__(self, rows: int) -> None:
        """Room for so many."""
        self._tokens = np.zeros((STEPS, rows), np.int64)
        """What each row is fed at each step [steps, rows]."""
        self._log_probs = np.zeros((STEPS, rows))
        """Of the same tokens."""
        self._special = np.full((rows, 1), NO_TOKEN)
        """The tokens that a row's search does not merely append [rows, most of any row]."""
        self._searches: list[GreedySearch | None] = []
        """Of each live row."""
        self.fed = self._tokens[0, :0]
        """What each row is fed next [live], a part of `_tokens`. May be written to, unless the row is searched."""
        self.ask = Ask()
        """What must be seen of the rows: one token that each can have."""
        self._met: NDArray[np.bool_] | None = None
        """Which special tokens the rows have got at the last step [live, most of any row]. None: none of them."""
        self.unsettled = False
        """`settle` has something to do."""
        self._step = 0
        self._due = NEVER
        """No search is over because of its length before this step."""
        self._opening = False
        """The next step is the first of a search whose first token is forced."""
        self._stopping = False
        """There may be searches that a text ends."""
        self._steps: BestSteps | None = None
        """Of the arrays above, when steps were last made by a cache."""

    def join(self) -> None:
        """One more row, behind the others. It is not searched yet."""
        if not self._searches:
            self.ask, self._stopping = Ask(), False
        self._special[len(self._searches)] = NO_TOKEN
        self._searches.append(None)
        self.fed = self._tokens[self._step, : len(self._searches)]

    def search(self, row: int, decoding: Decoding, rules: TargetRules, rank: int = 0) -> None:
        """Begins the greedy search of a row: the next step chooses the first token, by its rank."""
        last = self._step + max(1, free_tokens(decoding, rules))
        self._searches[row] = GreedySearch(decoding, rules, self._step, last, rank)
        self._due = min(self._due, last)
        special = [NOT_FINITE, *(rules.end_ids | rules.suppressed_ids)]
        if (best := 1 + rank + len(rules.barred_ids(0))) > self.ask.best:
            self.ask = Ask(best)
        self._stopping |= rules.stops is not None
        self._opening |= rank > 0 or rules.forced_begin_id is not None
        if len(special) > self._special.shape[1]:
            missing = len(special) - self._special.shape[1]
            self._special = np.pad(self._special, ((0, 0), (0, missing)), mode="edge")
        self._special[row] = NOT_FINITE
        self._special[row, : len(special)] = special

    def append(self, found: Found) -> None:
        """Appends to every row the best token of a step."""
        if self._step + 1 == len(self._tokens):
            self._make_room()
        self._step += 1
        live = len(self._searches)
        self.fed = tokens = self._tokens[self._step, :live]
        tokens[:] = found.token_ids[:, 0]
        self._log_probs[self._step, :live] = found.log_probs[:, 0]
        met = tokens[:, None] == self._special[:live]
        self._met = met if 1 in met.tobytes() else None  # of so few, quicker than to ask NumPy for any
        self.unsettled = self._met is not None or self._step >= self._due or self._opening or self._stopping

    def follow(self, following: Following, found: Found, most: int) -> int:
        """Makes up to `most` decoder steps, and appends their best tokens. See `engine.decoder.Goes`."""
        if self._step + 1 == len(self._tokens):
            self._make_room()
        if self._steps is None or not self._steps.are(self._tokens, self._special):
            self._steps = BestSteps(self._tokens, self._log_probs, self._special)
        room = min(self._due, len(self._tokens) - 1) - self._step
        made = following.best(self._steps.at(self._step + 1), 1 if self._opening or self._stopping else min(most, room))
        self._step += made
        self.fed = self._tokens[self._step, : len(self._searches)]
        self._met = self.fed[:, None] == self._special[: len(self.fed)] if self._steps.met else None
        self.unsettled = self._met is not None or self._step >= self._due or self._opening or self._stopping
        return made

    def settle(self, found: Found) -> list[int]:
        """Sees to what is special in the step that was appended last. Returns the rows whose search is over."""
        self.unsettled = False
        over = [] if self._met is None else self._treat(sorted({*self._met.nonzero()[0].tolist()}), found)
        if self._opening:
            over = self._open(over, found)
        if self._stopping:
            over = sorted({*over, *self._stopped()})
        return over if self._step < self._due else sorted({*over, *self._at_their_limit()})

    def hypotheses(self, row: int) -> tuple[Hypothesis, ...]:
        """What the search of a row that is over has found. None: the model's numbers are not finite."""
        search = self._searches[row]
        assert search is not None, f"row {row} is not searched"
        chosen = slice(search.start + 1, self._step + 1)
        tokens, log_probs = self._tokens[chosen, row].tolist(), self._log_probs[chosen, row].tolist()
        return () if tokens[-1] == NOT_FINITE else (search.hypothesis(tokens, log_probs),)

    def take(self, parents: Sequence[int], rows: Sequence[int], live: int) -> None:
        """Old row parents[i] continues in rows[i]. No other row of the `live` ones is searched here.

        No row is read after it was overwritten, as with a cache: see `engine.batch.placing.place`.
        """
        searches, self._searches = self._searches, [None] * live
        self.fed = self._tokens[self._step, :live]
        for parent, row in zip(parents, rows, strict=True):
            search = self._searches[row] = searches[parent]
            if row != parent:
                self._copy(parent, row, search)
        if len(rows) < live:
            others = [row for row, search in enumerate(self._searches) if search is None]
            self._special[others] = NO_TOKEN

    def close_up(self, moves: Sequence[tuple[int, int]], live: int) -> None:
        """So many rows are left, before all others. moves: (old row, row) of those that are elsewhere now."""
        for parent, row in moves:
            search = self._searches[row] = self._searches[parent]
            self._copy(parent, row, search)
        del self._searches[live:]
        self.fed = self._tokens[self._step, :live]

    def _copy(self, parent: int, row: int, search: GreedySearch | None) -> None:
        """What is kept of a row, whose search this is, to another."""
        since = slice(self._step if search is None else search.start, self._step + 1)
        self._special[row] = self._special[parent]
        self._tokens[since, row] = self._tokens[since, parent]
        self._log_probs[since, row] = self._log_probs[since, parent]

    def _treat(self, rows: Sequence[int], found: Found) -> list[int]:
        """Takes a worse token where the best is suppressed. Returns the rows that end with theirs."""
        over = []
        for row in rows:
            search = self._searches[row]
            assert search is not None, f"row {row} is not searched"
            token_ids, barred = found.token_ids[row].tolist(), search.rules.barred_ids(self._step - search.start - 1)
            rank = next(rank for rank, token in enumerate(token_ids) if token not in barred)
            self._tokens[self._step, row] = token_ids[rank]
            self._log_probs[self._step, row] = found.log_probs[row, rank]
            if token_ids[rank] == NOT_FINITE or token_ids[rank] in search.rules.end_ids:
                over.append(row)
        return over

    def _open(self, over: Sequence[int], found: Found) -> list[int]:
        """Takes another token than the best where a search makes its first step. Returns the rows that are over now."""
        self._opening, opened, ended = False, set[int](), list[int]()
        for row, search in enumerate(self._searches):
            if search is None or search.start + 1 != self._step or self._tokens[self._step, row] == NOT_FINITE:
                continue
            if search.rules.forced_begin_id is not None:
                self._tokens[self._step, row], self._log_probs[self._step, row] = search.rules.forced_begin_id, 0.0
                opened.add(row)
            elif search.rank:
                token, log_prob = _alternative(search, found.token_ids[row].tolist(), found.log_probs[row].tolist())
                self._tokens[self._step, row], self._log_probs[self._step, row] = token, log_prob
                opened.add(row)
                if token == NOTHING or token in search.rules.end_ids:
                    ended.append(row)
        return [row for row in over if row not in opened] + ended

    def _stopped(self) -> list[int]:
        """The rows whose search a text ends."""
        searches = [(row, search) for row, search in enumerate(self._searches) if search and search.rules.stops]
        self._stopping = bool(searches)
        return [
            row
            for row, search in searches
            if search.rules.stopped_by(self._tokens[search.start + 1 : self._step + 1, row].tolist())
        ]

    def _at_their_limit(self) -> list[int]:
        searches = [(row, search.last) for row, search in enumerate(self._searches) if search is not None]
        self._due = min((last for _, last in searches), default=NEVER)
        return [row for row, last in searches if last <= self._step]

    def _make_room(self) -> None:
        """Forgets the steps that no search has a token of. Doubles the room if those that are left fill half of it."""
        searches = [search for search in self._searches if search is not None]
        first = min((search.start for search in searches), default=self._step)
        steps = len(self._tokens) * (2 if 2 * (self._step - first) > len(self._tokens) else 1)
        self._tokens, self._log_probs = _last(self._tokens, first, steps), _last(self._log_probs, first, steps)
        for search in searches:
            search.start -= first
            search.last -= first
        self._step -= first
        self._due -= first


def _alternative(search: GreedySearch, token_ids: Sequence[int], log_probs: Sequence[float]) -> tuple[int, float]:
    """The token of a search's rank, and its log-probability. NOTHING, if it is not probable enough.

    token_ids, log_probs: the best of the row, best first
    """
    barred, least = search.rules.barred_ids(0), search.decoding.min_alternative_expansion_prob
    able = [pair for pair in zip(token_ids, log_probs, strict=True) if pair[0] not in barred]
    token, log_prob = able[search.rank] if search.rank < len(able) else (NOTHING, -inf)
    return (token, log_prob) if log_prob > IMPOSSIBLE and exp(log_prob) >= least else (NOTHING, 0.0)


def _last(array: NDArray[T], first: int, steps: int) -> NDArray[T]:
    """A copy that begins with a later step and has so many [steps, rows]."""
    copy = np.zeros((steps, array.shape[1]), array.dtype)
    copy[: len(array) - first] = array[first:]
    return copy
