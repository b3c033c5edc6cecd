"""Between a step of the decoder and the searches: the best tokens of rows whose requests have processors."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from engine.decoder import NOT_FINITE, Ask, Found
from engine.processors.chain import has_processors
from engine.processors.drawing import UNDECIDED, Known, draw_of_known
from engine.processors.processed import Group, Processed, alike
from engine.processors.processor import Seen
from engine.processors.sampling import Sampling, draw
from engine.processors.targets import FedTokens
from models.decoding import Decoding

MOST_SORTED = 256
"""Tokens of a whole row that one is drawn from, unless it may be another."""
NORMALISER_ERROR = 0.01
"""How far the sum of all probabilities may be from 1: our own operators look at most tokens in 8 bits. Of 5,131 steps
of FLORES sentences none was off by a fifth of that (kernels/README.md)."""
WHOLE_ERROR = 1e-5
"""The same, of rows that are looked at whole."""

Best = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]
"""Tokens, best first, their scores, and what is told of them as log-probabilities [rows, best]."""


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
        self._largest_id = 0
        """No token that is named, or was fed, has a larger one."""

    def begin(self, processed: Processed) -> None:
        """One request more. Its row has been fed nothing yet."""
        self._requests.append(processed)
        self._largest_id = max(self._largest_id, processed.largest_id)
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
        self._largest_id = max(self._largest_id, int(token_ids.max(initial=0)))

    def take(self, parents: Sequence[int]) -> None:
        """Row i continues old row parents[i]."""
        if self._requests:
            self._fed.take(parents)

    def ask(self, searches: Ask) -> Ask:
        """What must be seen of the rows where searches ask for that."""
        self._best = searches.best
        if not self._requests:
            return searches
        kinds = {one.kind for one in self._requests}
        best = max(searches.best, *(kind.known for kind in kinds))
        normaliser = searches.normaliser or any(kind.known and kind.needs_logits for kind in kinds)
        return replace(searches, best=best, normaliser=normaliser, logits=True)

    def process(self, found: Found, rows: Sequence[Processed | None]) -> Found:
        """What the searches see of the step. rows: what becomes of each [live]."""
        token_ids, log_probs = found.token_ids[:, : self._best].copy(), found.log_probs[:, : self._best].copy()
        finite = np.flatnonzero(found.token_ids[: len(rows), 0] != NOT_FINITE).tolist()
        for group in alike(rows, finite, self._fed):
            best, together = group.kind.best, group.rows
            if group.kind.sampling is None:
                log_probs[together] = -np.inf
                token_ids[together, :best], _, log_probs[together, :best] = self._best_of(found, group, best)
            else:
                token_ids[together, 0], log_probs[together, 0] = self._draw(found, group, group.kind.sampling)
        named = None if found.named is None else partial(self._named, found, rows)
        return Found(token_ids, log_probs, named, found.normaliser, found.logits, found.attention)

    def _named(
        self,
        found: Found,
        rows: Sequence[Processed | None],
        which: NDArray[np.intp],
        token_ids: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """What a beam search sees where it names tokens: of rows with processors, what is left of them after those."""
        assert found.named is not None
        scores = found.named(which, token_ids)
        place_of = {row: place for place, row in enumerate(which.tolist())}
        for group in alike(rows, place_of, self._fed):
            places = [place_of[row] for row in group.rows.tolist()]
            if not group.kind.raises:
                scores[places] = self._processed(group, token_ids[places], scores[places])
                continue
            assert found.logits is not None
            logits = found.logits(group.rows)
            whole = logits - _normaliser(found, group, logits)
            group.process(whole, self._seen(group))
            named = np.take_along_axis(whole, np.maximum(token_ids[places], 0), 1)
            scores[places] = np.where(token_ids[places] < 0, -np.inf, named)
        return scores

    def _draw(self, found: Found, group: Group, sampling: Sampling) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """A token of each row and the model's log-probability of it [rows]."""
        steps = zip(group.of, group.chosen.tolist(), strict=True)
        noise = np.array([one.noise[step] for one, step in steps if one.noise is not None])
        if sampling.bounded and not group.kind.known:
            return self._draw_of_whole_rows(found, group, sampling, noise)
        if sampling.bounded:
            look = self._look(found, group)
            token_ids, scores, log_probs = look.ordered()
            column = draw_of_known(sampling, look.known(scores, bool(group.kind.chain)), noise)
        else:
            token_ids, scores, log_probs = self._best_of(found, group, sampling.wanted)
            column = draw(sampling.probabilities(scores), noise)
        rows = np.arange(len(column))
        tokens, told = token_ids[rows, column], log_probs[rows, column]
        if len(undecided := np.flatnonzero(column == UNDECIDED)):
            again = self._draw_of_whole_rows(found, group.part(undecided), sampling, noise[undecided])
            tokens[undecided], told[undecided] = again
        return tokens, told

    def _draw_of_whole_rows(
        self, found: Found, group: Group, sampling: Sampling, noise: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The same where the best tokens do not tell: of rows that are looked at whole."""
        assert found.logits is not None
        logits = found.logits(group.rows)
        normaliser = _normaliser(found, group, logits)
        scores = logits.copy()
        group.process(scores, self._seen(group))
        few = 0 < sampling.wanted <= MOST_SORTED
        token_ids, of_best = best_of_all(scores, sampling.wanted if few else min(MOST_SORTED, scores.shape[1]))
        if few:
            columns = draw(sampling.probabilities(of_best), noise)
        else:
            columns = draw_of_known(sampling, _known_of_all(scores, of_best), noise)
        tokens = np.take_along_axis(token_ids, columns[:, None], 1)
        for row in np.flatnonzero(columns == UNDECIDED).tolist():
            all_ids, all_scores = best_of_all(scores[row, None], sampling.wanted)
            tokens[row] = all_ids[:, draw(sampling.probabilities(all_scores), noise[row, None])[0]]
        return tokens[:, 0], (np.take_along_axis(logits, tokens, 1) - normaliser)[:, 0]

    def _best_of(self, found: Found, group: Group, best: int) -> Best:
        """The best tokens of rows after the processors. best: how many; 0: all."""
        known = group.kind.known
        if not known or best > min(known, found.token_ids.shape[1]):
            return self._of_whole_rows(found, group, best)
        look = self._look(found, group)
        token_ids, scores, told = look.ordered(best)
        unsure = np.flatnonzero(scores[:, -1] < look.given[:, -1])
        if len(unsure):
            again = self._of_whole_rows(found, group.part(unsure), best)
            token_ids[unsure], scores[unsure], told[unsure] = again
        return token_ids, scores, told

    def _look(self, found: Found, group: Group) -> "Look":
        """At those that the decoder has found.

        No more than are found of the row alone: what is looked at, and so the last bit, is the same in any batch.
        """
        kind, columns = group.kind, slice(group.kind.known)
        token_ids, log_probs = found.token_ids[group.rows, columns], found.log_probs[group.rows, columns]
        barred = group.barred
        if not kind.chain and not any(barred):
            return Look(token_ids, log_probs, log_probs, log_probs, barred, True)
        given = log_probs
        if kind.needs_logits:
            assert found.normaliser is not None
            given = log_probs + found.normaliser(group.rows)[:, None]
        return Look(token_ids, log_probs, given, self._processed(group, token_ids, given), barred, kind.of_logits)

    def _processed(self, group: Group, token_ids: NDArray[np.int64], given: NDArray[np.float32]) -> NDArray[np.float32]:
        """The scores of some tokens of each row of a group after the processors [rows, some].

        token_ids: negative where there is none
        """
        seen, rows = self._seen(group), np.arange(len(token_ids))[:, None]
        self._largest_id = max(self._largest_id, int(token_ids.max()))
        tokens = 1 + self._largest_id
        scores = self._nothing(len(token_ids), tokens + 1)
        columns = np.where(token_ids < 0, tokens, token_ids)  # behind all that anybody names
        scores[rows, columns] = given
        group.process(scores, seen)
        processed = scores[rows, columns]
        scores[rows, columns] = -np.inf
        return processed

    def _of_whole_rows(self, found: Found, group: Group, best: int) -> Best:
        """Looks at the whole vocabulary where what the decoder has found is not enough.

        Nor does it take more of that than is found of the row alone: it need not be the best of the whole row quite.
        """
        assert found.logits is not None
        of_logits, known = group.kind.of_logits, found.token_ids[group.rows, : group.kind.known]
        logits = found.logits(group.rows)
        normaliser = _normaliser(found, group, logits)
        scores = logits.copy() if of_logits else logits - normaliser
        if 0 < best <= known.shape[1]:
            least = np.take_along_axis(scores, known[:, -1:], 1)
            group.process(scores, self._seen(group))
            token_ids, of_best = best_among(scores, known, best)
            if len(unsure := np.flatnonzero(of_best[:, -1:] < least)):
                token_ids[unsure], of_best[unsure] = best_of_all(scores[unsure], best)
        else:
            group.process(scores, self._seen(group))
            token_ids, of_best = best_of_all(scores, best)
        log_probs = np.take_along_axis(logits, token_ids, 1) - normaliser if of_logits else of_best
        return token_ids, of_best, log_probs

    def _seen(self, group: Group) -> Seen:
        return Seen(self._fed.of(group.rows), [one.source_ids for one in group.of], group.chosen)

    def _nothing(self, rows: int, tokens: int) -> NDArray[np.float32]:
        """Scores of -inf [rows, at least so many tokens]. Whoever changes them leaves them so."""
        if self._scratch.shape[0] < rows or self._scratch.shape[1] < tokens:
            shape = tuple(max(two) for two in zip(self._scratch.shape, (rows, 2 * tokens), strict=True))
            self._scratch = np.full(shape, -np.inf, np.float32)
        return self._scratch[:rows]


@dataclass(frozen=True, slots=True)
class Look:
    """What becomes of the best tokens of some rows."""

    token_ids: NDArray[np.int64]
    """As they were found [rows, tokens]."""
    log_probs: NDArray[np.float32]
    """The model's."""
    given: NDArray[np.float32]
    """What the processors change: these, or logits. No other token has more than the last one."""
    processed: NDArray[np.float32]
    """What they make of it."""
    barred: Sequence[Collection[int]]
    """Tokens that each row cannot have."""
    of_logits: bool
    """See `Processed.of_logits`."""

    def ordered(self, best: int | None = None) -> Best:
        """So many, or all of them. Of equal scores, the lower id's is first."""
        order = np.lexsort((self.token_ids, -self.processed))[:, :best]
        rows = np.arange(len(order))[:, None]
        told = self.log_probs if self.of_logits else self.processed
        return self.token_ids[rows, order], self.processed[rows, order], told[rows, order]

    def known(self, scores: NDArray[np.float32], lowered: bool) -> Known:
        """What is known of the probabilities of all tokens.

        scores: of these, best first. lowered: the processors may have lowered any
        """
        normaliser = self.given[:, :1].astype(np.float64) - self.log_probs[:, :1]
        others = 1 - np.exp(self.log_probs.astype(np.float64)).sum(1)
        barred = np.array([len(ids) for ids in self.barred])
        least = self.given[:, -1] - normaliser[:, 0]
        return Known(scores - normaliser, least, others, NORMALISER_ERROR, lowered, barred)


def _known_of_all(scores: NDArray[np.float32], best: NDArray[np.float32]) -> Known:
    """The same where the scores of all tokens are known. best: the best of them."""
    kept = scores.astype(np.float64)
    most = best[:, :1].astype(np.float64)
    normaliser = most + np.log(np.exp(kept - most).sum(1, keepdims=True))
    log_probs = best - normaliser
    others = np.maximum(1 - np.exp(log_probs).sum(1), 0)
    return Known(log_probs, log_probs[:, -1], others, WHOLE_ERROR, False, np.zeros(len(best)))


def _normaliser(found: Found, group: Group, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of the rows of a group [rows, 1]."""
    return np.take_along_axis(logits, found.token_ids[group.rows, :1], 1) - found.log_probs[group.rows, :1]


def looks_at_scores(decoding: Decoding) -> bool:
    """Whether a request with these options may need whole rows of scores."""
    return has_processors(decoding) or decoding.do_sample or bool(decoding.must_include)


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
