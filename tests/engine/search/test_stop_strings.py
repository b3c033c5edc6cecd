"""Texts that end hypotheses: the tokens, scores and ends of Hugging Face's `generate`, in one running batch."""

import random
from contextlib import closing
from dataclasses import replace
from itertools import product
from math import inf

import pytest

from engine.devices.session import CPU
from engine.loading.load import Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import FinishReason
from engine.runner import Runner
from models.decoding import Decoding
from models.package.folder import Package
from models.tokenizers.target_texts import Pieces
from tests.checkpoints import ZOO, flores
from tests.oracles import HuggingFace

PLAIN = Decoding(max_new_tokens=40)
STRINGS = [(" de",), ("ã", "?", " e "), ("a", "e", "o"), ("nada disto",), ("r da", "in")]
OPTIONS = [
    replace(PLAIN, num_beams=beams, num_return_sequences=beams, stop_strings=strings, no_repeat_ngram_size=ngrams)
    for strings, (beams, ngrams) in product(STRINGS, ((1, 0), (4, 0), (2, 2)))
]
OPTIONS.append(replace(PLAIN, target_prefix=(34, 11954), stop_strings=("do",)))
MANY_END = replace(PLAIN, num_beams=4, num_return_sequences=4, stop_strings=STRINGS[2])
OPTIONS += (replace(MANY_END, early_stopping="never", suppress_tokens=tokens) for tokens in ((), (31_000,)))


def test_hypotheses_end_as_in_transformers() -> None:
    package = Package.open(ZOO)
    tokenizer, loadable = package.tokenizer(), Loadable.of(package)
    pieces = Pieces(tokenizer.pieces)
    rules = replace(loadable.rules, pieces=pieces)
    sources = [tuple(tokenizer.encode(english)) for english, _ in flores()[:60:30]]
    huggingface = HuggingFace(ZOO)
    expected = {
        (source, options): found
        for options in OPTIONS
        for source, found in zip(sources, huggingface.generate(sources, options), strict=True)
    }
    requests = list(expected)
    random.Random(1).shuffle(requests)
    with (
        closing(open_decoder(loadable, CPU, 512, 512)) as decoder,
        Runner(decoder, 32, 1, Unobserved()) as run,
    ):
        answers = list(decode(run, rules, requests, window=len(requests)))
    reasons = set()
    for request, answer in zip(requests, answers, strict=True):
        tolerance = inf if request[1].num_beams == 1 else 2e-3  # once processors change them, greedy ones are others
        assert [one.token_ids for one in answer.hypotheses] == [tokens for tokens, _ in expected[request]], request[1]
        for one, (_, score) in zip(answer.hypotheses, expected[request], strict=True):
            assert one.score == pytest.approx(score, abs=tolerance)
            assert (one.finish_reason is FinishReason.END_TOKEN) is (one.token_ids[-1] == 0 and len(one.token_ids) < 40)
            if one.finish_reason is FinishReason.STOP_STRING:
                assert any(string.encode() in pieces.text(one.token_ids) for string in request[1].stop_strings)
            reasons.add(one.finish_reason)
    assert reasons == set(FinishReason)
