"""A search and what drives it: a model that is a function of prefixes."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.decoder import Found
from engine.request import Hypothesis
from engine.search import is_greedy, open_search
from engine.search.greedy import GreedyRows
from engine.search.search import FINISHED, Advance, Search, Seen
from engine.targets import TargetRules
from models.decoding import Decoding, EarlyStopping

Prefix = tuple[int, ...]
LanguageModel = Callable[[Sequence[Prefix]], list[list[float]]]
"""The log-probabilities of the next token [prefixes, vocab]."""

END = 0
EARLY_STOPPING: tuple[EarlyStopping, ...] = (False, True, "never")


@dataclass
class Run:
    """A search that was driven to its end."""

    hypotheses: tuple[Hypothesis, ...] = ()
    settled: list[Prefix] = field(default_factory=list)
    steps: int = 0
    """How often the model was asked."""
    live: list[int] = field(default_factory=list)
    reordered: int = 0
    """Steps whose children are not one of each row, in order."""


def run(decoding: Decoding, rules: TargetRules, model: LanguageModel, surplus: int = 0) -> Run:
    """Drives a search as the engine does. It sees `surplus` candidates more than it asked for."""
    search, result = alone(decoding, rules), Run()
    prefixes: list[Prefix] = [()]
    while prefixes:
        rows = model(prefixes)
        token_ids = [top(row, search.ask.best + surplus) for row in rows]
        log_probs = [[row[token] for token in ids] for row, ids in zip(rows, token_ids, strict=True)]
        advance = search.advance(seen(token_ids, log_probs))
        assert all(0 <= parent < len(prefixes) for parent in advance.parents)
        result.reordered += list(advance.parents) not in ([], [0] * len(advance.parents), list(range(len(prefixes))))
        prefixes = [(*prefixes[p], token) for p, token in zip(advance.parents, advance.tokens, strict=True)]
        settled = search.settled()
        assert all(prefix[: len(settled)] == settled for prefix in prefixes)
        result.settled.append(settled)
        result.live.append(len(prefixes))
        result.steps += 1
        assert result.steps <= decoding.max_new_tokens
    result.hypotheses = search.hypotheses()
    return result


class GreedyAlone:
    """Greedy search of one sentence, in the only row of a batch."""

    def __init__(self, decoding: Decoding, rules: TargetRules) -> None:
        self._rows, self._settled = GreedyRows(1), list[int]()
        self._rows.join()
        self._rows.search(0, decoding, rules)
        self.ask = self._rows.ask

    def advance(self, seen: Seen) -> Advance:
        if self._rows.advance(seen.found):
            self._settled = list(self.hypotheses()[0].token_ids)
            return FINISHED
        self._settled += self._rows.fed.tolist()
        return Advance((0,), tuple(self._rows.fed.tolist()))

    def settled(self) -> tuple[int, ...]:
        return tuple(self._settled)

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        return self._rows.hypotheses(0)


def alone(decoding: Decoding, rules: TargetRules) -> Search:
    """The search of one sentence, whichever it is."""
    return GreedyAlone(decoding, rules) if is_greedy(decoding) else open_search(decoding, rules)


def seen(token_ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]]) -> Seen:
    """What a step of a batch found that has no other rows."""
    found = Found(np.array(token_ids), np.array(log_probs, np.float32))
    return Seen(token_ids, log_probs, found, range(len(token_ids)))


def top(row: Sequence[float], k: int) -> list[int]:
    return sorted(range(len(row)), key=row.__getitem__, reverse=True)[:k]


def random_model(vocab: int, seed: int, end_bias: float = 0.0) -> LanguageModel:
    """Log-probabilities that depend on nothing but the seed and the prefix."""

    def log_probs(prefix: Prefix) -> list[float]:
        chance = random.Random(f"{seed} {prefix}")
        logits = [chance.gauss(end_bias if token == END else 0.0, 2.0) for token in range(vocab)]
        total = math.log(sum(map(math.exp, logits)))
        return [logit - total for logit in logits]

    return lambda prefixes: [log_probs(prefix) for prefix in prefixes]
