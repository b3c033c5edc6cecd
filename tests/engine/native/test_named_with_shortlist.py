"""Tokens that requests name and shortlists lack: targets have them, and the best that brute force finds."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.cuda.decoder import CudaDecoder
from engine.decoder import Decoder
from engine.devices.session import CPU
from export.verification.reference import log_probs
from kernels.library import Library
from models.decoding import Decoding
from models.package.shortlist import Shortlist
from tests.engine.native.graphs import LONGEST, Exported
from tests.engine.native.test_native_engine import SCORE_ATOL, Guests, hypotheses, with_logits

Tokens = tuple[int, ...]

PLAIN = Decoding(max_new_tokens=6)
SOURCES: list[Tokens] = [(5,), (7, 3), (5,), (11,)]
LENGTH = 3
BEAMS = 25
"""As many as a source is allowed tokens: a step of LENGTH keeps whatever can still become the best."""


class Wishes:
    """A package with a shortlist, and two tokens for each source that it does not give."""

    def __init__(self, exported: Exported) -> None:
        self.exported = exported
        self.shortlist: Shortlist = exported.files.shortlist  # type: ignore[assignment]
        size = exported.model.config.target_vocab_size
        self.phrases: list[Tokens] = []
        for source in SOURCES:
            missing = np.setdiff1d(np.arange(size), [*self.shortlist.allowed(source), exported.model.config.end_id])
            self.phrases.append((int(missing[-2]), int(missing[1])))

    def score(self, source: Tokens, phrase: Tokens, target: Tokens) -> float:
        """By PyTorch, of what the source and its request allow alone."""
        allowed = self.shortlist.allowed(source, phrase)
        assert set(phrase) <= set(allowed.tolist()) and not set(phrase) & set(self.shortlist.allowed(source).tolist())
        fed = (self.exported.model.config.decoder_start_id, *target[:-1])
        of_allowed = log_probs(self.exported.model, source, fed)[:, allowed.tolist()]
        scores: NDArray[np.float32] = of_allowed.log_softmax(1).numpy()
        return float(scores[range(len(target)), np.searchsorted(allowed, target)].mean())

    def best(self, source: Tokens, phrase: Tokens) -> tuple[float, Tokens]:
        """Of all targets that have the phrase."""
        end_id, allowed = self.exported.model.config.end_id, self.shortlist.allowed(source, phrase).tolist()
        assert len(allowed) <= BEAMS
        cut = chain.from_iterable(((*phrase, token), (token, *phrase)) for token in allowed if token != end_id)
        return max((self.score(source, phrase, target), target) for target in {(*phrase, end_id), *cut})


@pytest.fixture(scope="module")
def wishes(shortlisted: Exported) -> Wishes:
    return Wishes(shortlisted)


@pytest.fixture(params=["standard", "device", "native"])
def decoder(request: pytest.FixtureRequest, shortlisted: Exported, library: Library) -> Decoder[Any]:
    if request.param == "native":
        return with_logits(shortlisted, shortlisted.files.folder).native(library)
    if request.param == "device":
        return CudaDecoder(shortlisted.files, LONGEST, LONGEST, CPU)
    return shortlisted.standard


def answers(
    wishes: Wishes, decoder: Decoder[Any], asked: Sequence[tuple[Tokens, Decoding]]
) -> Iterator[tuple[Tokens, float]]:
    """All in one batch."""
    guests = Guests(decoder, wishes.exported.loadable(), sum(decoding.rows for _, decoding in asked))
    told = [guests.admit([source], decoding)[0][1] for source, decoding in asked]
    guests.finish()
    for events in told:
        best = hypotheses(events)[0]
        yield best.token_ids, best.score


def test_named_tokens_join_what_a_source_is_allowed(wishes: Wishes, decoder: Decoder[Any]) -> None:
    plain = [(source, PLAIN) for source in SOURCES]
    included = [
        (source, Decoding(num_beams=BEAMS, max_new_tokens=LENGTH, early_stopping="never", must_include=(phrase,)))
        for source, phrase in zip(SOURCES, wishes.phrases, strict=True)
    ]
    token = wishes.phrases[0][0]
    biased = Decoding(max_new_tokens=2, sequence_bias=(((token,), 1e4),))
    preferred = Decoding(max_new_tokens=1, target_prefix=(token,), prefix_bias_beta=1.0)
    others = [(SOURCES[0], biased), (SOURCES[0], preferred)]
    *found, (twice, _), (once, of_once) = answers(wishes, decoder, [*plain, *included, *others])
    assert found[: len(plain)] == list(answers(wishes, decoder, plain))
    for (target, of_target), source, phrase in zip(found[len(plain) :], SOURCES, wishes.phrases, strict=True):
        of_best, best = wishes.best(source, phrase)
        assert target == best
        assert of_target == pytest.approx(of_best, abs=SCORE_ATOL)
    assert (twice, once) == ((token, token), (token,))
    assert of_once == pytest.approx(wishes.score(SOURCES[0], (token,), (token,)), abs=SCORE_ATOL)
