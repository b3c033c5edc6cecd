"""A search and what drives it: a model that is a function of prefixes."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.decoder import Ask, Found
from engine.logits.whole_rows import answer
from engine.request import Hypothesis
from engine.search.beam_rows import BeamRows
from engine.search.greedy import GreedyRows
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
        children = search.advance(found(token_ids, log_probs, rows))
        parents = [parent for parent, _ in children]
        assert all(0 <= parent < len(prefixes) for parent in parents)
        result.reordered += parents not in ([], [0] * len(parents), list(range(len(prefixes))))
        prefixes = [(*prefixes[parent], token) for parent, token in children]
        settled = search.settled()
        assert all(prefix[: len(settled)] == settled for prefix in prefixes)
        result.settled.append(settled)
        result.live.append(len(prefixes))
        result.steps += 1
        assert result.steps <= decoding.max_new_tokens
    result.hypotheses = search.hypotheses()
    return result


Children = list[tuple[int, int]]
"""Of each row that follows a step: the row that it continues, and the token that it is fed."""


def advance(rows: GreedyRows, found: Found) -> list[int]:
    """As the rows of a running batch do. Returns those whose search is over."""
    rows.append(found)
    return rows.settle(found) if rows.unsettled else []


class GreedyAlone:
    """Greedy search of one sentence, in the only row of a batch."""

    def __init__(self, decoding: Decoding, rules: TargetRules) -> None:
        self._rows, self._settled = GreedyRows(1), list[int]()
        self._rows.join()
        self._rows.search(0, decoding, rules)
        self.ask = self._rows.ask

    def advance(self, found: Found) -> Children:
        if advance(self._rows, found):
            self._settled = list(self.hypotheses()[0].token_ids)
            return []
        self._settled += self._rows.fed.tolist()
        return [(0, token) for token in self._rows.fed.tolist()]

    def settled(self) -> tuple[int, ...]:
        return tuple(self._settled)

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        return self._rows.hypotheses(0)


class BeamAlone:
    """Beam search of one sentence, in a batch that has no other rows."""

    def __init__(self, decoding: Decoding, rules: TargetRules) -> None:
        self._rows, self._hypotheses = BeamRows(), tuple[Hypothesis, ...]()
        self._number = self._rows.search(0, decoding, rules)
        self.ask = self._rows.ask

    def advance(self, found: Found) -> Children:
        self._rows.append(found)
        over = self._rows.settle(found) if self._rows.unsettled else {}
        self._hypotheses = over.get(self._number, ())
        children = list(zip(self._rows.parents.tolist(), self._rows.tokens.tolist(), strict=True))
        assert bool(over) != bool(children)
        self._rows.place(np.arange(len(children)))
        return children

    def settled(self) -> tuple[int, ...]:
        return self._hypotheses[0].token_ids if self._hypotheses else self._rows.settled(self._number)

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        return self._hypotheses


def alone(decoding: Decoding, rules: TargetRules) -> GreedyAlone | BeamAlone:
    """The search of one sentence, whichever it is."""
    return GreedyAlone(decoding, rules) if decoding.num_beams == 1 else BeamAlone(decoding, rules)


def found(
    token_ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]], rows: Sequence[Sequence[float]] = ()
) -> Found:
    """What a step found. rows: the log-probabilities of the whole vocabulary, which stand for logits."""
    whole = np.array(rows, np.float32)
    found = Found(np.array(token_ids), np.array(log_probs, np.float32))
    return answer(Ask(named=True), found, lambda some: whole[some] + 1)


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
