"""Alternatives of one source: they begin with its likeliest tokens, and go on as a search after that prefix would."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from math import exp

import numpy as np
import pytest

from engine.batch.running_batch import RunningBatch
from engine.decoder import Ask
from engine.devices.session import CPU
from engine.loading.load import Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Event, Finished, Translate
from engine.runner import Runner
from models.decoding import Decoding
from models.package.folder import Package
from tests.checkpoints import ZOO
from tests.fakes import CopyDecoder, CopySource, rules_of

GREEDY = Decoding(max_new_tokens=30, with_tokens=True)
FOUR = replace(GREEDY, num_return_sequences=4, return_alternatives=True)
TEXT = "Where can I buy a ticket for the concert?"
END = 0


@pytest.fixture(scope="module", params=["off", "auto"])
def runner(loadable: Loadable, request: pytest.FixtureRequest) -> Iterator[Runner]:
    with (
        closing(open_decoder(loadable, CPU, 64, 64, request.param)) as decoder,
        Runner(decoder, 12, 1, Unobserved()) as runner,
    ):
        yield runner


def source(text: str = TEXT) -> tuple[int, ...]:
    return tuple(Package.open(ZOO).tokenizer().encode(text))


def prefix(text: str) -> tuple[int, ...]:
    return tuple(Package.open(ZOO).tokenizer().encode_target(text))


@pytest.mark.parametrize("words", ["", "Onde", "Onde é que eu"])
def test_each_goes_on_as_after_its_first_token(runner: Runner, loadable: Loadable, words: str) -> None:
    before = prefix(words)
    asked = replace(FOUR, target_prefix=before)
    found, plain = decode(
        runner, loadable.rules, [(source(), asked), (source(), replace(GREEDY, target_prefix=before))]
    )
    firsts = [one.token_ids[0] for one in found.hypotheses]
    assert len(set(firsts)) == 4
    assert found.hypotheses[0].token_ids == plain.hypotheses[0].token_ids
    odds = [one.log_probs[0] for one in found.hypotheses]
    assert odds == sorted(odds, reverse=True)
    longer = [(source(), replace(GREEDY, target_prefix=(*before, first), max_new_tokens=29)) for first in firsts]
    for alternative, rest in zip(found.hypotheses, decode(runner, loadable.rules, longer), strict=True):
        assert alternative.token_ids[1:] == rest.hypotheses[0].token_ids
        assert alternative.log_probs[1:] == pytest.approx(rest.hypotheses[0].log_probs, abs=2e-3)


def test_the_first_tokens_are_the_likeliest(loadable: Loadable) -> None:
    with closing(open_decoder(loadable, CPU, 64, 64, "off")) as decoder:
        cache = decoder.open_cache(1)
        cache.join(decoder.encode([source()])[0])
        cache.begin_step(loadable.rules.prefix_ids, Ask(5))
        best = cache.end_step()
        with Runner(decoder, 4, 1, Unobserved()) as runner:
            [found] = decode(runner, loadable.rules, [(source(), FOUR)])
    barred = loadable.rules.barred_ids(0)
    expected = [pair for pair in zip(best.token_ids[0], best.log_probs[0], strict=True) if pair[0] not in barred][:4]
    assert [one.token_ids[0] for one in found.hypotheses] == [token for token, _ in expected]
    assert [one.log_probs[0] for one in found.hypotheses] == pytest.approx([log_prob for _, log_prob in expected])


def test_improbable_ones_are_left_out(runner: Runner, loadable: Loadable) -> None:
    [all_four] = decode(runner, loadable.rules, [(source(), FOUR)])
    odds = [exp(one.log_probs[0]) for one in all_four.hypotheses]
    bounds = [0.0, (odds[1] + odds[2]) / 2, (odds[0] + odds[1]) / 2, 1.0]
    requests = [(source(), replace(FOUR, min_alternative_expansion_prob=bound)) for bound in bounds]
    counts = []
    for answer in decode(runner, loadable.rules, requests):
        assert answer.hypotheses == all_four.hypotheses[: len(answer.hypotheses)]
        counts.append(len(answer.hypotheses))
    assert counts == [4, 2, 1, 1]


def test_there_are_none_where_nothing_is_chosen(runner: Runner, loadable: Loadable) -> None:
    """The one token that there is room for is forced: it would be the same in all of them."""
    assert loadable.rules.forced_end_id == END
    [found] = decode(runner, loadable.rules, [(source(), replace(FOUR, max_new_tokens=1))])
    assert [one.token_ids for one in found.hypotheses] == [(END,)]


def test_other_options_hold(runner: Runner, loadable: Loadable) -> None:
    """A word that no target may have is no alternative either; and those in the batch do not matter."""
    [before] = decode(runner, loadable.rules, [(source(), FOUR)])
    unwanted = before.hypotheses[1].token_ids[0]
    without = replace(FOUR, suppress_tokens=(unwanted,))
    texts = [source("Good morning."), source()]
    _, found, _ = decode(runner, loadable.rules, [(texts[0], GREEDY), (texts[1], without), (texts[1], FOUR)])
    firsts = [one.token_ids[0] for one in found.hypotheses]
    assert firsts[:3] == [before.hypotheses[index].token_ids[0] for index in (0, 2, 3)]
    assert len(set(firsts)) == 4 and unwanted not in {token for one in found.hypotheses for token in one.token_ids}


class EndsSecond(CopyDecoder):
    """The second best token of every step ends the target."""

    def open_cache(self, rows: int) -> "EndsSecondCache":  # type: ignore[override]
        return EndsSecondCache(super().open_cache(rows))


class EndsSecondCache:
    def __init__(self, cache: object) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> object:
        return getattr(self._cache, name)

    def end_step(self) -> object:
        found = self._cache.end_step()  # type: ignore[attr-defined]
        if found.token_ids.shape[1] > 1:
            found.token_ids[:, 1] = np.where(found.token_ids[:, 0] == END, END + 1, END)
        return found


def test_one_may_end_at_once() -> None:
    events = list[Event]()
    engine = RunningBatch[CopySource](EndsSecond(), 4, Unobserved(), 0)  # type: ignore[arg-type]
    decoding = replace(GREEDY, num_return_sequences=2, return_alternatives=True)
    engine.admit([Translate((7, 8, END), events.append, decoding=decoding, rules=rules_of(END))])
    while not engine.idle:
        engine.step()
    [answer] = events
    assert isinstance(answer, Finished)
    assert [one.token_ids for one in answer.hypotheses] == [(7, 8, END), (END,)]
    assert engine.free_rows == 4
