"""Phrases of references, in translations of real sentences: all there, whatever else is in the batch."""

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from engine.decoder import Decoder
from engine.devices.session import CPU
from engine.loading.load import Kernels, Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import FinishReason, Hypothesis
from engine.runner import Runner
from engine.targets import TargetRules
from models.decoding import Decoding
from models.package.folder import Package
from models.tokenizers.target_texts import Pieces
from tests.checkpoints import ZOO, flores

PACKAGE = Package.open(ZOO)
TOKENIZER = PACKAGE.tokenizer()
PAIRS = flores()[:160:20]
BEAMS = Decoding(num_beams=4, num_return_sequences=2, max_new_tokens=90)
BAD = 14
"""A token that some are not to have."""
TOLERANCE = 2e-3
"""Of scores, by our own operators (decision 22)."""


def requests() -> dict[tuple[tuple[int, ...], Decoding], tuple[str, ...]]:
    """Each sentence with phrases of its reference, alone or with other options, and some without any."""
    chance, asked = random.Random(3), {}
    for english, portuguese in PAIRS:
        words, source = portuguese.split(), tuple(TOKENIZER.encode(english))
        half = len(words) // 2
        starts = chance.randrange(half - 2), half + chance.randrange(half - 2)
        phrases = (" ".join(words[start : start + 2]) for start in starts)
        tokens = {text: tuple(TOKENIZER.encode_target(text)) for text in phrases}
        tokens = {text: ids for text, ids in tokens.items() if TOKENIZER.decode(ids) == text and BAD not in ids}
        texts, included = tuple(tokens), replace(BEAMS, must_include=tuple(tokens.values()))
        asked[source, included] = texts
        asked[source, replace(included, num_beams=6, repetition_penalty=1.1, bad_words=((BAD,),))] = texts
        asked[source, replace(BEAMS, must_exclude=("a", " de"))] = ()
        asked[source, replace(BEAMS, num_beams=1, num_return_sequences=1)] = ()
    return asked


@pytest.fixture(scope="module", params=["off", "auto"])
def decoder(request: pytest.FixtureRequest) -> Iterator[Decoder[Any]]:
    kernels: Kernels = request.param
    with closing(open_decoder(Loadable.of(PACKAGE), CPU, 256, 256, kernels)) as opened:
        yield opened


@pytest.fixture(scope="module")
def rules() -> TargetRules:
    return replace(Loadable.of(PACKAGE).rules, pieces=Pieces(TOKENIZER.pieces))


def test_all_phrases_are_there_and_none_that_must_not(decoder: Decoder[Any], rules: TargetRules) -> None:
    asked = requests()
    assert sum(map(len, asked.values())) > len(PAIRS) * 2
    shuffled = list(asked)
    random.Random(1).shuffle(shuffled)
    with Runner(decoder, 40, 1, Unobserved()) as runner:
        together = [answer.hypotheses for answer in decode(runner, rules, shuffled)]
        some = random.Random(2).sample(range(len(shuffled)), 6)
        alone = [next(decode(runner, rules, [shuffled[one]])).hypotheses for one in some]
    for (_, decoding), hypotheses in zip(shuffled, together, strict=True):
        assert len(hypotheses) == decoding.num_return_sequences
    for request, hypotheses in zip(shuffled, together, strict=True):
        for one in hypotheses:
            text = TOKENIZER.decode(one.token_ids)
            assert all(phrase in text for phrase in asked[request])
            assert not any(phrase in f" {text}" for phrase in request[1].must_exclude if isinstance(phrase, str))
            assert not request[1].bad_words or BAD not in one.token_ids
            assert one.finish_reason is FinishReason.END_TOKEN
    assert all(equal(together[place], found) for place, found in zip(some, alone, strict=True))


def test_a_prefix_may_be_fed_beside(decoder: Decoder[Any], rules: TargetRules) -> None:
    """Of a request whose options look at whole rows of scores, but not yet."""
    source = tuple(TOKENIZER.encode(PAIRS[0][0]))
    prefix = tuple(TOKENIZER.encode_target(PAIRS[0][1]))[:6]
    asked = [
        (source, replace(BEAMS, must_include=(prefix[:1],))),
        (source, replace(BEAMS, target_prefix=prefix, repetition_penalty=1.1, max_new_tokens=20)),
    ]
    with Runner(decoder, 40, 1, Unobserved()) as runner:
        phrases, after = (answer.hypotheses for answer in decode(runner, rules, asked))
    assert all(prefix[0] in one.token_ids for one in phrases)
    assert len(after) == BEAMS.num_return_sequences


def equal(together: tuple[Hypothesis, ...], alone: tuple[Hypothesis, ...]) -> bool:
    tokens = [one.token_ids for one in together] == [one.token_ids for one in alone]
    return tokens and all(abs(a.score - b.score) < TOLERANCE for a, b in zip(together, alone, strict=True))
