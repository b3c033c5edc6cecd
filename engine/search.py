"""Greedy and beam search: which hypotheses continue, and when to stop. Sees candidates, never a model.

Token for token the `generate` of Hugging Face transformers 5.23 on one sentence: `GenerationMixin._sample` without
sampling, and `GenerationMixin._beam_search`.

Beam search (Graves 2012, "Sequence Transduction with Recurrent Neural Networks") keeps `num_beams` live hypotheses. A
step ranks all their one-token extensions by total log-probability. The best `num_beams` of those that do not end live
on; those that end and rank among the first `num_beams` are finished. The best `num_beams` finished ones are kept, by
their score sum(log p) / length^length_penalty. `early_stopping` says when no live one is worth another step.

A search starts with one row; transformers starts with `num_beams` equal ones and ranks the others behind by 1e9. Where
the vocabulary is too small for `num_beams` different hypotheses there are fewer, and none is repeated.
"""

import math
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import islice, takewhile
from typing import Protocol

from engine.decoder import Ask
from engine.request import FinishReason, Hypothesis
from models.decoding import Decoding


@dataclass(frozen=True, slots=True)
class EndRules:
    """How targets end, a property of the model."""

    end_id: int
    forced_end_id: int | None
    """The token, if the model wants one, that every hypothesis of `max_new_tokens` ends with, at log-probability 0."""
    suppressed_ids: tuple[int, ...]
    """Tokens that are never produced (Hugging Face `bad_words_ids` of one token, padding for one). The others keep
    the log-probability that the model gave them. The end token cannot be suppressed."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What a search wants of the next step: child j extends parent row parents[j] by tokens[j]. No child: finished."""

    parents: Sequence[int]
    """Local rows, 0 being the first row the search held in this step."""
    tokens: Sequence[int]


FINISHED = Advance((), ())


class Search(Protocol):
    """One sentence's search. It holds one row at first, and as many rows after each step as `advance` returned."""

    @property
    def ask(self) -> Ask:
        """What it must see of each of its rows."""
        ...

    def advance(self, token_ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]]) -> Advance:
        """Takes the candidates of its rows [rows, ask.best], best first.

        Rows may be longer than `ask.best`, and shorter if they hold the whole vocabulary.
        """
        ...

    def settled(self) -> tuple[int, ...]:
        """The tokens that every possible best result begins with, so far."""
        ...

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The results, best first, at most `num_return_sequences`. Only once finished."""
        ...


def open_search(decoding: Decoding, rules: EndRules) -> Search:
    """Starts the search of one sentence."""
    return GreedySearch(decoding, rules) if decoding.num_beams == 1 else BeamSearch(decoding, rules)


class GreedySearch:
    """The best token of every step. The length penalty decides nothing here, but the score has it too."""

    def __init__(self, decoding: Decoding, rules: EndRules) -> None:
        self._length_penalty = decoding.length_penalty
        self._end_id, self._forced_end_id = rules.end_id, rules.forced_end_id
        self._suppressed = _suppressed(rules)
        self._free_tokens = _free_tokens(decoding, rules)
        self._tokens: list[int] = []
        self._log_prob = 0.0
        self.ask = Ask(1 + len(self._suppressed))

    def advance(self, token_ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]]) -> Advance:
        if self._free_tokens:
            token = self._append_best(token_ids[0], log_probs[0])
            if token == self._end_id:
                return FINISHED
            if len(self._tokens) < self._free_tokens:
                return Advance((0,), (token,))
        if self._forced_end_id is not None:
            self._tokens.append(self._forced_end_id)
        return FINISHED

    def settled(self) -> tuple[int, ...]:
        return tuple(self._tokens)

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        length = len(self._tokens)
        chosen = length <= self._free_tokens and self._tokens[-1] == self._end_id
        reason = FinishReason.END_TOKEN if chosen else FinishReason.LENGTH
        return (Hypothesis(tuple(self._tokens), _score(self._log_prob, length, self._length_penalty), reason),)

    def _append_best(self, token_ids: Sequence[int], log_probs: Sequence[float]) -> int:
        rank = 0
        while token_ids[rank] in self._suppressed:
            rank += 1
        self._tokens.append(token_ids[rank])
        self._log_prob += log_probs[rank]
        return token_ids[rank]


class BeamSearch:
    """The best of `num_beams` hypotheses that are extended side by side.

    The advances it returned are its back pointers: the tokens of a hypothesis are read from them when it ends.
    """

    def __init__(self, decoding: Decoding, rules: EndRules) -> None:
        self._decoding = decoding
        self._num_beams = decoding.num_beams
        self._end_id, self._forced_end_id = rules.end_id, rules.forced_end_id
        self._suppressed = _suppressed(rules)
        self._free_tokens = _free_tokens(decoding, rules)
        self._costs = [0.0]
        """-sum(log p) of each live hypothesis, lowest first. Empty once finished."""
        self._steps: list[Advance] = []
        self._finished: list[Hypothesis] = []
        """Best first, at most `num_beams`."""
        # All children may come from one row, and it has one end token. (The 2 * num_beams of transformers are for all
        # rows together.)
        self.ask = Ask(self._num_beams + 1 + len(self._suppressed))

    def advance(self, token_ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]]) -> Advance:
        if self._free_tokens:
            self._extend(token_ids, log_probs)
        if len(self._steps) == self._free_tokens and self._forced_end_id is not None:
            self._force_end(self._forced_end_id)
        return self._steps[-1] if self._costs else FINISHED

    def settled(self) -> tuple[int, ...]:
        if not self._finished:
            return self._live_prefix()
        best = self._finished[0].token_ids
        if not self._costs:
            return best
        pairs = zip(self._live_prefix(), best, strict=False)
        return tuple(live for live, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        return tuple(self._finished[: self._decoding.num_return_sequences])

    def _extend(self, token_ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]]) -> None:
        """One step: ends and extends hypotheses, then looks whether another step is worth it."""
        last = len(self._steps) + 1 == self._decoding.max_new_tokens
        parents, tokens, costs = list[int](), list[int](), list[float]()
        ranked = islice(self._ranked(token_ids, log_probs), 2 * self._num_beams)
        for rank, (cost, parent, token) in enumerate(ranked):
            if token != self._end_id and not last:
                parents.append(parent)
                tokens.append(token)
                costs.append(cost)
                if len(costs) == self._num_beams:
                    break
            elif rank < self._num_beams:
                self._end(parent, token, cost, FinishReason.END_TOKEN if token == self._end_id else FinishReason.LENGTH)
        self._steps.append(Advance(parents, tokens))
        self._costs = costs if self._is_worthwhile(costs) else []

    def _ranked(
        self, token_ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]]
    ) -> Iterator[tuple[float, int, int]]:
        """Merges the rows into one sequence of (cost, row, token), cheapest first, that is read only as far as needed.

        A heap of each row's next candidate, because little is read: several times faster than sorting all candidates.
        """
        costs, suppressed = self._costs, self._suppressed
        heap = [(cost - row[0], parent, 0) for parent, (cost, row) in enumerate(zip(costs, log_probs, strict=True))]
        heapify(heap)
        while heap:
            cost, parent, column = heap[0]
            token, row = token_ids[parent][column], log_probs[parent]
            if token not in suppressed:
                yield cost, parent, token
            column += 1
            if column < len(row):
                heapreplace(heap, (costs[parent] - row[column], parent, column))
            else:
                heappop(heap)

    def _end(self, parent: int, token: int, cost: float, reason: FinishReason) -> None:
        """Finishes the hypothesis that extends row `parent` by `token`, if it is one of the `num_beams` best."""
        tokens = (*self._path(parent, len(self._steps)), token)
        score = _score(-cost, len(tokens), self._decoding.length_penalty)
        insort(self._finished, Hypothesis(tokens, score, reason), key=lambda finished: -finished.score)
        del self._finished[self._num_beams :]

    def _force_end(self, token: int) -> None:
        """Ends every live hypothesis by the one token it can have: no model is needed to know its log-probability."""
        for row, cost in enumerate(self._costs):
            self._end(row, token, cost, FinishReason.LENGTH)
        self._costs = []

    def _is_worthwhile(self, costs: Sequence[float]) -> bool:
        """Whether live hypotheses of these costs may still enter the results (`_check_early_stop_heuristic`).

        Until there are `num_beams` finished ones they do. Then True says no. False says yes if the best of them beats
        the worst finished one at its present length, "never" if it would at the length that serves it best.
        """
        early_stopping, length_penalty = self._decoding.early_stopping, self._decoding.length_penalty
        if not costs or len(self._finished) < self._num_beams:
            return bool(costs)
        if early_stopping is True:
            return False
        longest = early_stopping == "never" and length_penalty > 0
        length = self._decoding.max_new_tokens if longest else len(self._steps)
        return _score(-costs[0], length, length_penalty) > self._finished[-1].score

    def _live_prefix(self) -> tuple[int, ...]:
        """What all live hypotheses begin with: the path of their last common ancestor."""
        rows, length = set(range(len(self._costs))), len(self._steps)
        while len(rows) > 1:
            length -= 1
            parents = self._steps[length].parents
            rows = {parents[row] for row in rows}
        return self._path(rows.pop(), length)

    def _path(self, row: int, length: int) -> tuple[int, ...]:
        """The tokens of the hypothesis that was in this row after `length` steps."""
        tokens = []
        for step in reversed(self._steps[:length]):
            tokens.append(step.tokens[row])
            row = step.parents[row]
        return tuple(reversed(tokens))


def _suppressed(rules: EndRules) -> frozenset[int]:
    return frozenset(rules.suppressed_ids) - {rules.end_id}


def _free_tokens(decoding: Decoding, rules: EndRules) -> int:
    """How many tokens at most the model chooses."""
    return decoding.max_new_tokens - (rules.forced_end_id is not None)


def _score(log_prob: float, length: int, length_penalty: float) -> float:
    """log_prob / length^length_penalty, or its limit where the power is too large or too small for a float."""
    try:
        return log_prob / math.pow(length, length_penalty)
    except OverflowError:
        return 0.0
    except ZeroDivisionError:
        return -math.inf
