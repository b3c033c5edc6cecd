"""Beam search (Graves 2012, "Sequence Transduction with Recurrent Neural Networks").

It keeps `num_beams` live hypotheses. A step ranks all their one-token extensions by total log-probability. The best
`num_beams` of those that do not end live on; those that end and rank among the first `num_beams` are finished. The
best `num_beams` finished ones are kept, by their score sum(log p) / length^length_penalty. `early_stopping` says when
no live one is worth another step.

A search starts with one row; transformers starts with `num_beams` equal ones and ranks the others behind by 1e9. Where
the vocabulary is too small for `num_beams` different hypotheses there are fewer, and none is repeated.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice, takewhile

from engine.decoder import Ask
from engine.request import FinishReason, Hypothesis
from engine.search.score import free_tokens, score
from engine.search.search import FINISHED, Advance, Seen
from engine.targets import TargetRules
from models.decoding import Decoding


class BeamSearch:
    """The best of `num_beams` hypotheses that are extended side by side.

    The advances it returned are its back pointers: the tokens of a hypothesis are read from them when it ends.
    """

    def __init__(self, decoding: Decoding, rules: TargetRules) -> None:
        self._decoding = decoding
        self._num_beams = decoding.num_beams
        self._end_ids, self._forced_end_id = rules.end_ids, rules.forced_end_id
        self._suppressed = rules.suppressed_ids - rules.end_ids
        self._free_tokens = free_tokens(decoding, rules)
        self._costs = [0.0]
        """-sum(log p) of each live hypothesis, lowest first. Empty once finished."""
        self._steps: list[Advance] = []
        self._finished: list[Hypothesis] = []
        """Best first, at most `num_beams`."""
        # All children may come from one row, and it has each end token once. (The 2 * num_beams of transformers are for
        # all rows together.)
        self.ask = Ask(self._num_beams + len(self._end_ids) + len(self._suppressed))

    def advance(self, seen: Seen) -> Advance:
        if self._free_tokens:
            self._extend(seen.token_ids, seen.log_probs)
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
            if token not in self._end_ids and not last:
                parents.append(parent)
                tokens.append(token)
                costs.append(cost)
                if len(costs) == self._num_beams:
                    break
            elif rank < self._num_beams:
                ended = token in self._end_ids
                self._end(parent, token, cost, FinishReason.END_TOKEN if ended else FinishReason.LENGTH)
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
        hypothesis = Hypothesis(tokens, score(-cost, len(tokens), self._decoding.length_penalty), reason)
        insort(self._finished, hypothesis, key=lambda finished: -finished.score)
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
        return score(-costs[0], length, length_penalty) > self._finished[-1].score

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
