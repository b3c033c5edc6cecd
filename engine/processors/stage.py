"""Between a step of the decoder and the searches: the best tokens of rows whose requests have processors."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from engine.decoder import NOT_FINITE, Ask, Found
from engine.processors.chain import Chain, chain, without_processors
from engine.processors.processor import Seen
from engine.processors.sampling import Sampling, draw
from engine.processors.targets import FedTokens
from engine.targets import TargetRules
from models.decoding import Decoding

SPARE = 8
"""Candidates more than a search needs: mostly more than the processors take away of a row's best."""

Noise = NDArray[np.float64]
Best = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]
"""Tokens, best first, their scores, and what is told of them as log-probabilities [rows, best]."""


@dataclass(frozen=True, slots=True)
class Processed:
    """What becomes of the scores of a row."""

    chain: Chain
    of_logits: bool
    """They change logits, and what is told of a token is the model's log-probability: `generate` without beams."""
    source_ids: tuple[int, ...]
    rules: TargetRules
    best: int
    """Tokens of a row that its search looks at, or that one is drawn from; 0: all."""
    sampling: Sampling | None = None
    noise: Noise | None = None
    """Of every step, if a token is drawn."""

    @classmethod
    def of(
        cls, decoding: Decoding, rules: TargetRules, source_ids: tuple[int, ...], sample: int = 0
    ) -> "Processed | None":
        """None: the search sees what the decoder has found.

        sample: which of those that are drawn of the source
        """
        processors, sampling = chain(decoding, rules), Sampling.of(decoding)
        if not processors and sampling is None:
            return None
        if sampling is not None:
            noise = np.random.Generator(np.random.Philox(decoding.seed).jumped(sample)).random(decoding.max_new_tokens)
            return cls(processors, True, source_ids, rules, sampling.wanted, sampling, noise)
        greedy = decoding.num_beams == 1
        hidden = rules.barred_ids(0) if greedy else rules.end_ids | rules.suppressed_ids
        return cls(processors, greedy, source_ids, rules, decoding.rows + len(hidden))


class ProcessorStage:
    """The processors of a running batch. Costs nothing while no request has any."""

    def __init__(self, rows: int) -> None:
        """Room for so many."""
        self._fed = FedTokens(rows)
        self._requests: list[Processed] = []
        self.idle = True
        """No request has processors."""
        self._best = 1
        self._scratch = np.full((0, 0), -np.inf, np.float32)

    def begin(self, processed: Processed) -> None:
        """One request more. Its row has been fed nothing yet."""
        self._requests.append(processed)
        self.idle = False

    def end(self, processed: Processed) -> None:
        """It leaves."""
        self._requests = [one for one in self._requests if one is not processed]
        self.idle = not self._requests

    def start(self, row: int) -> None:
        """A row is fed nothing yet."""
        self._fed.start(row)

    def feed(self, token_ids: NDArray[np.int64]) -> None:
        """Every live row is fed one token [live]."""
        self._fed.feed(token_ids)

    def take(self, parents: Sequence[int]) -> None:
        """Row i continues old row parents[i]."""
        if self._requests:
            self._fed.take(parents)

    def ask(self, searches: Ask) -> Ask:
        """What must be seen of the rows where searches ask for that."""
        self._best = searches.best
        if not self._requests:
            return searches
        drawn = max(one.sampling.known if one.sampling is not None else 1 for one in self._requests)
        return replace(searches, best=max(searches.best, drawn) + SPARE, logits=True)

    def process(self, found: Found, rows: Sequence[Processed | None]) -> Found:
        """What the searches see of the step. rows: what becomes of each [live]."""
        token_ids, log_probs = found.token_ids[:, : self._best].copy(), found.log_probs[:, : self._best].copy()
        processed = [row for row in range(len(rows)) if token_ids[row, 0] != NOT_FINITE]
        for group in _alike(rows, processed):
            best, sampling, together = group.of[0].best, group.of[0].sampling, group.rows
            if sampling is None:
                log_probs[together] = -np.inf
                token_ids[together, :best], _, log_probs[together, :best] = self._best_of(found, group, best)
            else:
                token_ids[together, 0], log_probs[together, 0] = self._draw(found, group, sampling)
        return replace(found, token_ids=token_ids, log_probs=log_probs, logits=partial(self._logits, found, rows))

    def _logits(self, found: Found, rows: Sequence[Processed | None], which: NDArray[np.intp]) -> NDArray[np.float32]:
        """What a beam search sees where it looks at whole rows: of those with processors, log-probabilities after them.

        These are logits as well, whose normaliser is 0.
        """
        assert found.logits is not None
        logits, place_of = found.logits(which), {row: place for place, row in enumerate(which.tolist())}
        for group in _alike(rows, place_of):
            places = [place_of[row] for row in group.rows.tolist()]
            best = np.take_along_axis(logits[places], found.token_ids[group.rows, :1], 1)
            scores = logits[places] - (best - found.log_probs[group.rows, :1])
            group.process(scores, self._seen(group), self._barred(group))
            logits[places] = scores
        return logits

    def _draw(self, found: Found, group: "Group", sampling: Sampling) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """A token of each row and the model's log-probability of it [rows]."""
        token_ids, scores, log_probs = self._best_of(found, group, sampling.wanted)
        chosen = self._chosen(group)
        noise = np.array([one.noise[step] for one, step in zip(group.of, chosen, strict=True) if one.noise is not None])
        column = draw(sampling.probabilities(scores), noise)[:, None]
        return np.take_along_axis(token_ids, column, 1)[:, 0], np.take_along_axis(log_probs, column, 1)[:, 0]

    def _best_of(self, found: Found, group: "Group", best: int) -> Best:
        """The best tokens of rows after the processors. best: how many; 0: all."""
        columns = min(best + SPARE, found.token_ids.shape[1])
        # No more than are found of the row alone: what is looked at, and so the last bit, is the same in any batch.
        found = replace(found, token_ids=found.token_ids[:, :columns], log_probs=found.log_probs[:, :columns])
        known = 0 < best <= columns and group.known_suffice(found.normaliser is not None)
        return self._of_known(found, group, best) if known else self._of_whole_rows(found, group, best)

    def _of_known(self, found: Found, group: "Group", best: int) -> Best:
        """Looks at those that the decoder has found."""
        known, log_probs = found.token_ids[group.rows], found.log_probs[group.rows]
        given = log_probs if found.normaliser is None else log_probs + found.normaliser[group.rows, None]
        given = given if group.needs_logits else log_probs
        barred = self._barred(group)
        seen = self._seen(group)
        named = max(map(max, [*(one.source_ids for one in group.of), *filter(None, barred)]))
        scores = self._nothing(len(known), 1 + max(known.max(), seen.targets.max(), named, group.largest_id))
        np.put_along_axis(scores, known, given, 1)
        group.process(scores, seen, barred)
        token_ids, of_best = best_among(scores, known, best)
        told = of_best
        if group.needs_logits:
            np.put_along_axis(scores, known, log_probs, 1)
            told = np.take_along_axis(scores, token_ids, 1)
        np.put_along_axis(scores, known, -np.inf, 1)
        unsure = np.flatnonzero(of_best[:, -1] < given[:, -1])
        if len(unsure):
            again = self._of_whole_rows(found, group.part(unsure), best)
            told = told.copy()
            token_ids[unsure], of_best[unsure], told[unsure] = again
        return token_ids, of_best, told

    def _of_whole_rows(self, found: Found, group: "Group", best: int) -> Best:
        """Looks at the whole vocabulary where what the decoder has found is not enough."""
        assert found.logits is not None
        known, logits = found.token_ids[group.rows], found.logits(group.rows)
        normaliser = np.take_along_axis(logits, known[:, :1], 1) - found.log_probs[group.rows, :1]
        scores = logits.copy() if group.of_logits else logits - normaliser
        least = np.take_along_axis(scores, known[:, -1:], 1)
        group.process(scores, self._seen(group), self._barred(group))
        enough = 0 < best <= known.shape[1] and not group.raises
        token_ids, of_best = best_among(scores, known, best) if enough else best_of_all(scores, best)
        unsure = np.flatnonzero((of_best[:, -1:] < least) & enough)
        if len(unsure):
            token_ids[unsure], of_best[unsure] = best_of_all(scores[unsure], best)
        log_probs = np.take_along_axis(logits, token_ids, 1) - normaliser if group.of_logits else of_best
        return token_ids, of_best, log_probs

    def _chosen(self, group: "Group") -> list[int]:
        """How many tokens each row has got."""
        lengths = self._fed.lengths(group.rows).tolist()
        return [length - len(one.rules.prefix_ids) for length, one in zip(lengths, group.of, strict=True)]

    def _barred(self, group: "Group") -> Sequence[Collection[int]]:
        """What cannot be drawn. Nothing, where a search sees to that."""
        if group.of[0].sampling is None:
            return [()] * len(group.of)
        return [one.rules.barred_ids(chosen) for one, chosen in zip(group.of, self._chosen(group), strict=True)]

    def _seen(self, group: "Group") -> Seen:
        return Seen(self._fed.of(group.rows), [one.source_ids for one in group.of], np.array(self._chosen(group)))

    def _nothing(self, rows: int, tokens: int) -> NDArray[np.float32]:
        """Scores of -inf [rows, at least so many tokens]. Whoever changes them leaves them so."""
        if self._scratch.shape[0] < rows or self._scratch.shape[1] < tokens:
            shape = tuple(max(two) for two in zip(self._scratch.shape, (rows, 2 * tokens), strict=True))
            self._scratch = np.full(shape, -np.inf, np.float32)
        return self._scratch[:rows]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are processed alike."""

    rows: NDArray[np.intp]
    of: Sequence[Processed]
    """What becomes of each."""

    @property
    def of_logits(self) -> bool:
        """See `Processed.of_logits`."""
        return self.of[0].of_logits

    @property
    def raises(self) -> bool:
        """A token may become one of the best that was none."""
        return any(processor.raises for processor in self.of[0].chain)

    @property
    def largest_id(self) -> int:
        """The largest token id that a processor names."""
        return max((processor.largest_id for processor in self.of[0].chain), default=0)

    @property
    def needs_logits(self) -> bool:
        """Log-probabilities do not say what becomes of a score."""
        return self.of_logits and any(processor.of_logits for processor in self.of[0].chain)

    def known_suffice(self, normaliser: bool) -> bool:
        """Mostly: the best tokens and their log-probabilities, without whole rows of logits.

        normaliser: it is known, and so are the logits of these tokens
        """
        return not self.raises and (normaliser or not self.needs_logits)

    def process(self, scores: NDArray[np.float32], seen: Seen, barred: Sequence[Collection[int]]) -> None:
        """Changes the scores of the rows in place [rows, vocabulary]. barred: tokens that each cannot have."""
        for processor in self.of[0].chain:
            processor(scores, seen)
        for row, ids in enumerate(barred):
            scores[row, list(ids)] = -np.inf

    def part(self, which: NDArray[np.intp]) -> "Group":
        """Some of the rows."""
        return Group(self.rows[which], [self.of[one] for one in which.tolist()])


def _alike(rows: Sequence[Processed | None], which: Iterable[int]) -> Iterator[Group]:
    """Those of some rows that are processed alike."""
    alike: dict[tuple[Chain, bool, int, Sampling | None], list[int]] = {}
    for row in which:
        if (one := rows[row]) is not None:
            alike.setdefault((one.chain, one.of_logits, one.best, one.sampling), []).append(row)
    for together in alike.values():
        yield Group(np.array(together), [one for row in together if (one := rows[row]) is not None])


def looks_at_scores(decoding: Decoding) -> bool:
    """Whether a request with these options may need whole rows of scores."""
    return without_processors(decoding) != decoding or decoding.do_sample or bool(decoding.must_include)


def best_among(
    scores: NDArray[np.float32], token_ids: NDArray[np.int64], best: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The best of some tokens [rows, some], and their scores [rows, best]. Of equal scores, the lower id's is first."""
    token_ids = np.sort(token_ids, 1)
    found = np.take_along_axis(scores, token_ids, 1)
    order = np.argsort(-found, 1, kind="stable")[:, :best]
    return np.take_along_axis(token_ids, order, 1), np.take_along_axis(found, order, 1)


def best_of_all(scores: NDArray[np.float32], best: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The same of the whole vocabulary. best: 0 is all of it."""
    tokens = scores.shape[1]
    if 0 < best < tokens:
        return best_among(scores, np.argpartition(-scores, best - 1, 1)[:, :best].astype(np.int64), best)
    return best_among(scores, np.tile(np.arange(tokens), (len(scores), 1)), tokens)
