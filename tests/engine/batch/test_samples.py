"""Samples of one source: each is what its number and the seed say, whoever shares the batch; rows are given back."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

from engine.decoder import Decoder
from engine.devices.session import CPU
from engine.loading.load import Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Event, Finished, Tokens, Translate
from engine.runner import Runner
from models.decoding import Decoding
from models.package.folder import Package
from tests.checkpoints import ZOO

SAMPLED = Decoding(max_new_tokens=30, num_return_sequences=3, do_sample=True, seed=7, temperature=2.0)
ROWS = 4


@pytest.fixture
def decoder(loadable: Loadable) -> Iterator[Decoder[Any]]:
    with closing(open_decoder(loadable, CPU, 64, 64, "off")) as decoder:
        yield decoder


@pytest.fixture
def runner(decoder: Decoder[Any]) -> Iterator[Runner]:
    with Runner(decoder, ROWS, 1, Unobserved()) as runner:
        yield runner


def source(text: str) -> tuple[int, ...]:
    return tuple(Package.open(ZOO).tokenizer().encode(text))


def test_samples_are_those_of_their_numbers(decoder: Decoder[Any], runner: Runner, loadable: Loadable) -> None:
    texts = [source("The weather is nice today."), source("Where can I buy a ticket?")]
    [one] = decode(runner, loadable.rules, [(texts[0], replace(SAMPLED, num_return_sequences=1))])
    [alone] = decode(runner, loadable.rules, [(texts[0], SAMPLED)])
    greedy = Decoding(max_new_tokens=30)
    requests = [(texts[1], greedy), (texts[0], SAMPLED), (texts[1], replace(SAMPLED, seed=8)), (texts[0], greedy)]
    _, among_others, other_seed, _ = decode(runner, loadable.rules, requests)
    assert len(alone.hypotheses) == 3
    assert len({hypothesis.token_ids for hypothesis in alone.hypotheses}) == 3
    assert alone.hypotheses[0] == one.hypotheses[0], "the first is what one sample would be"
    assert among_others.hypotheses == alone.hypotheses
    assert len(other_seed.hypotheses) == 3
    with Runner(decoder, ROWS, 4, Unobserved()) as four_workers:
        found = list(decode(four_workers, loadable.rules, [*requests, *requests]))
    assert [answer.hypotheses for answer in found][1::4] == [alone.hypotheses] * 2


def test_a_stream_is_told_of_the_first(runner: Runner, loadable: Loadable) -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    runner.submit(Translate(source("Good morning."), events.put, decoding=SAMPLED, rules=loadable.rules, stream=True))
    told: tuple[int, ...] = ()
    while isinstance(event := events.get(timeout=60), Tokens):
        told += event.token_ids
    assert isinstance(event, Finished)
    assert told == event.hypotheses[0].token_ids[: len(told)]
    assert len(told) >= len(event.hypotheses[0].token_ids) - 1, "the last comes with the answer"


def test_rows_are_free_again(runner: Runner, loadable: Loadable) -> None:
    """There are four: each request needs all that the one before has given back."""
    events: SimpleQueue[Event] = SimpleQueue()
    wide = replace(SAMPLED, num_return_sequences=ROWS)
    first = Translate(source("Good morning."), events.put, decoding=wide, rules=loadable.rules, stream=True)
    runner.submit(first)
    assert isinstance(events.get(timeout=60), Tokens)
    first.cancel()
    for _ in range(2):
        [answer] = decode(runner, loadable.rules, [(source("Good morning."), wide)])
        assert len(answer.hypotheses) == ROWS
