"""Beam search (Graves 2012, "Sequence Transduction with Recurrent Neural Networks").

It keeps `num_beams` live hypotheses. A step ranks all their one-token extensions by total log-probability. The best
`num_beams` of those that do not end live on; those that end and rank among the first `num_beams` are finished. The
best finished ones are kept, by their score sum(log p) / length^length_penalty: `num_beams`, or more or fewer by
`patience`. `early_stopping` says when no live one is worth another step.

A search starts with one row; transformers starts with `num_beams` equal ones and ranks the others behind by 1e9. Where
the vocabulary is too small for `num_beams` different hypotheses there are fewer, and none is repeated.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from math import floor
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from engine.request import FinishReason, Hypothesis
from engine.search.phrases import Progress, phrases_of
from engine.search.score import candidates, finish_reason, free_tokens, score
from engine.targets import TargetRules
from models.decoding import Decoding

NO_PHRASES = phrases_of(())


class Extension(NamedTuple):
    """A live hypothesis and one more token."""

    cost: float
    """-sum(log p), of this token too."""
    parent: int
    """Which of the live hypotheses, 0 being the best."""
    token: int


Written = tuple[tuple[int, ...], tuple[float, ...]]
"""All tokens of a hypothesis, and the costs up to each; if nobody wants those, up to the last one."""


@dataclass(slots=True, eq=False)
class Finished:
    """A finished hypothesis. Its tokens are on a long way back, which few go: others soon push it out."""

    score: float
    reason: FinishReason
    write: Callable[[], Written]
    """Goes that way, as long as the search is there."""
    _written: Written | None = None

    def written(self) -> Written:
        """What there is on that way. It is gone once at most."""
        if self._written is None:
            self._written = self.write()
        return self._written


class Past(NamedTuple):
    """Of live hypotheses, by their numbers."""

    tokens: Callable[[int], tuple[int, ...]]
    costs: Callable[[int], tuple[float, ...]]
    """-sum(log p) up to each token."""


class BeamSearch:
    """What one sentence's search has finished, and when it is over. `BeamRows` has what is live."""

    def __init__(self, decoding: Decoding, rules: TargetRules) -> None:
        self._decoding, self._rules = decoding, rules
        self.end_ids, self._forced_end_id = rules.end_ids, rules.forced_end_id
        self.suppressed = rules.suppressed_ids - rules.end_ids
        self.special = (*self.end_ids, *self.suppressed)
        """Tokens that it does not merely append."""
        self._free_tokens = free_tokens(decoding, rules)
        self.last = max(1, self._free_tokens)
        """The step after which it is over at the latest: one is made even if there is nothing to choose."""
        self.num_beams = decoding.num_beams // decoding.num_beam_groups
        """Live hypotheses that it keeps at most."""
        patient = floor(self.num_beams * decoding.patience + 0.5)
        self.kept = max(patient, min(decoding.num_return_sequences, self.num_beams))
        """Finished hypotheses that it is over with, and keeps (Kasai et al. 2022, section 2.2, `patience`)."""
        self.candidates = candidates(decoding, rules)
        """Tokens that must be seen of each of its rows."""
        self.constrained = bool(decoding.must_include)
        """Every hypothesis must have some phrases."""
        self.phrases = phrases_of(decoding.must_include) if self.constrained else NO_PHRASES
        self.finished: list[Finished] = []
        """Best first, at most `most`."""
        self._unsure = bool(decoding.coverage_penalty)
        """What they leave out of the source lowers their scores, once they are looked at."""

    @property
    def most(self) -> int:
        """The same where it is not known yet what they are worth: then none that ends in time is given up."""
        return self.kept + (self.num_beams - 1 if self._unsure else 0)

    @property
    def full(self) -> bool:
        """As many hypotheses are finished as it is over with: every step may be the last."""
        return len(self.finished) >= self.kept

    @property
    def chosen(self) -> Sequence[Extension]:
        """What would have lived on in the step that it is over with, where somebody wants to know."""
        return ()

    @property
    def returned(self) -> int | None:
        """Finished hypotheses that are its results, at most. None: whoever knows what they are worth chooses."""
        return None if self._unsure else self._decoding.num_return_sequences

    @property
    def possible(self) -> Sequence[tuple[int, ...]]:
        """The tokens of finished hypotheses that may be the best of them."""
        possible = self.finished if self._unsure else self.finished[:1]
        return [one.written()[0] for one in possible]

    def hypothesis(self, finished: Finished) -> Hypothesis:
        """One of its own, to be told of."""
        tokens, costs = finished.written()
        each = tuple(before - after for before, after in pairwise((0.0, *costs))) if self._decoding.with_tokens else ()
        return Hypothesis(tokens, finished.score, finished.reason, each, log_prob=-costs[-1])

    @property
    def careful(self) -> bool:
        """Every step may do more than append the best tokens."""
        return self.full or self._rules.stops is not None

    @property
    def spare(self) -> int:
        """So many hypotheses may end, by an end token among the best extensions, without another thing to do."""
        alone = self.constrained or self._rules.min_tokens or self._rules.stops is not None
        return 0 if alone else max(0, self.kept - 1 - len(self.finished))

    @property
    def min_tokens(self) -> int:
        """Tokens before the end token."""
        return self._rules.min_tokens

    @property
    def begun(self) -> Progress:
        """What hypotheses have of the phrases when they begin: a prefix may have some."""
        progress = self.phrases.start(())
        for token in self._decoding.written_prefix:
            progress = self.phrases.follow(progress, np.array(token))
        return progress

    def advance(self, steps: int, ranked: Iterable[Extension], past: Past) -> Sequence[Extension]:
        """Makes a step, so many with it: returns the extensions that live on, best first, or none if it is over.

        ranked: all extensions, lowest cost first; with phrases, as `Banks` has them. Read only as far as needed.
        """
        if not self._free_tokens:
            self._finish(1, 0.0, FinishReason.LENGTH, self._forced)
            return ()
        children = self._extend(steps, ranked, past)
        if not self._is_worthwhile(steps, children):
            return ()
        if steps == self._free_tokens and self._forced_end_id is not None:
            for extension in children:
                forced = partial(self._forced, extension, past)
                self._finish(steps + 1, extension.cost, FinishReason.LENGTH, forced)
            return ()
        return children

    def _extend(self, steps: int, ranked: Iterable[Extension], past: Past) -> list[Extension]:
        """Finishes what ends. Returns what does not."""
        last, children = steps == self._decoding.max_new_tokens, list[Extension]()
        for rank, extension in enumerate(islice(self._allowed(steps, ranked), 2 * self.num_beams)):
            reason = self._reason(extension, past)
            if reason is FinishReason.LENGTH and not last:
                children.append(extension)
                if len(children) == self.num_beams:
                    break
            elif rank < self.num_beams:
                self._end(steps, extension, past, reason)
        # With phrases, `ranked` is in another order.
        return sorted(children, key=attrgetter("cost")) if self.constrained else children

    def _reason(self, extension: Extension, past: Past) -> FinishReason:
        """Why it would be a hypothesis."""
        if self._rules.stops is None:
            return FinishReason.END_TOKEN if extension.token in self.end_ids else FinishReason.LENGTH
        return finish_reason((*past.tokens(extension.parent), extension.token), self._rules)

    def _extended(self, extension: Extension, past: Past) -> Written:
        costs = past.costs(extension.parent) if self._decoding.with_tokens else ()
        return (*past.tokens(extension.parent), extension.token), (*costs, extension.cost)

    def _allowed(self, steps: int, ranked: Iterable[Extension]) -> Iterable[Extension]:
        """Those that the rules do not bar. A forced first token is the only one of its step, and costs nothing."""
        if steps == 1 and self._rules.forced_begin_id is not None:
            return [Extension(0.0, 0, self._rules.forced_begin_id)]
        barred = self._rules.barred_ids(steps - 1)
        return (extension for extension in ranked if extension.token not in barred)

    def _forced(self, extension: Extension | None = None, past: Past | None = None) -> Written:
        """With the one token that it can have next: no model is needed to know its log-probability."""
        assert self._forced_end_id is not None
        if extension is None or past is None:
            return (self._forced_end_id,), (0.0,)
        tokens, costs = self._extended(extension, past)
        return (*tokens, self._forced_end_id), (*costs, costs[-1])

    def end(self, steps: int, extension: Extension, past: Past) -> None:
        """Finishes a hypothesis of so many tokens, the last of which ends it. See `spare`."""
        self._end(steps, extension, past, FinishReason.END_TOKEN)

    def _end(self, steps: int, extension: Extension, past: Past, reason: FinishReason) -> None:
        """Finishes a hypothesis of so many tokens."""
        self._finish(steps, extension.cost, reason, partial(self._extended, extension, past))

    def _finish(self, length: int, cost: float, reason: FinishReason, written: Callable[[], Written]) -> None:
        """Keeps a hypothesis of so many tokens, if it is one of the best."""
        finished = Finished(score(-cost, length, self._decoding.length_penalty), reason, written)
        insort(self.finished, finished, key=lambda one: -one.score)
        del self.finished[self.most :]

    def _is_worthwhile(self, steps: int, live: Sequence[Extension]) -> bool:
        """Whether live hypotheses may still enter the results (`_check_early_stop_heuristic`).

        Until there are as many finished ones as it keeps they do. Then True says no. False says yes if the best of them
        beats the worst finished one at its present length, "never" if it would at the length that serves it best.
        """
        early_stopping, length_penalty = self._decoding.early_stopping, self._decoding.length_penalty
        if not live or not self.full:
            return bool(live)
        if early_stopping is True:
            return False
        longest = early_stopping == "never" and length_penalty > 0
        length = self._decoding.max_new_tokens if longest else steps
        return score(-live[0].cost, length, length_penalty) > self.finished[self.kept - 1].score
