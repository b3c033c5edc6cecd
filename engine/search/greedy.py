"""Greedy search: the best token of every step."""

from collections.abc import Sequence

from engine.decoder import Ask
from engine.request import FinishReason, Hypothesis
from engine.search.score import free_tokens, score
from engine.search.search import FINISHED, Advance, Seen
from engine.targets import TargetRules
from models.decoding import Decoding


class GreedySearch:
    """The best token of every step. The length penalty decides nothing here, but the score has it too."""

    def __init__(self, decoding: Decoding, rules: TargetRules) -> None:
        self._length_penalty = decoding.length_penalty
        self._end_ids, self._forced_end_id = rules.end_ids, rules.forced_end_id
        self._suppressed = rules.suppressed_ids - rules.end_ids
        self._free_tokens = free_tokens(decoding, rules)
        self._tokens: list[int] = []
        self._log_prob = 0.0
        self.ask = Ask(1 + len(self._suppressed))

    def advance(self, seen: Seen) -> Advance:
        if self._free_tokens:
            token = self._append_best(seen.token_ids[0], seen.log_probs[0])
            if token in self._end_ids:
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
        chosen = length <= self._free_tokens and self._tokens[-1] in self._end_ids
        reason = FinishReason.END_TOKEN if chosen else FinishReason.LENGTH
        return (Hypothesis(tuple(self._tokens), score(self._log_prob, length, self._length_penalty), reason),)

    def _append_best(self, token_ids: Sequence[int], log_probs: Sequence[float]) -> int:
        rank = 0
        while token_ids[rank] in self._suppressed:
            rank += 1
        self._tokens.append(token_ids[rank])
        self._log_prob += log_probs[rank]
        return token_ids[rank]
