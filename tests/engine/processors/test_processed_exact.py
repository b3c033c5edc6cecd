"""Options that change scores give the tokens and scores of Hugging Face's `generate`, all in one running batch.

Real weights and sentences, and random weights of an odd shape. With a package of models/zoo/en-pt, `python -m
tests.engine.processors.test_processed_exact 100 PACKAGE` takes more sentences than a test does.
"""

import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from engine.cpu.decoder import CpuDecoder
from engine.decoder import Decoder
from engine.devices.session import CPU
from engine.errors import NotOffered
from engine.loading.load import Kernels, Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Hypothesis
from engine.runner import Runner
from engine.targets import TargetRules, target_rules
from export.tracing.trace import trace
from export.weights.save import save
from models.checkpoint.bart_like import read
from models.decoding import Decoding, Options
from models.package.folder import Package
from tests.checkpoints import ZOO, flores
from tests.engine.exact.test_families import random_sources
from tests.fakes import CopyDecoder
from tests.models.families import BART_LIKE, LONGEST, write_family
from tests.oracles import HuggingFace, Scored, Tokens

SENTENCES = 3
TOLERANCE = 2e-3
"""Of scores: our own operators sum up a row of exponentials in another way, within that (decision 22)."""
PLAIN = Decoding(max_new_tokens=40)
OPTIONS = [
    PLAIN,
    replace(PLAIN, no_repeat_ngram_size=2),
    replace(PLAIN, repetition_penalty=1.3),
    replace(PLAIN, repetition_penalty=0.8),
    replace(PLAIN, encoder_no_repeat_ngram_size=1),
    replace(PLAIN, encoder_repetition_penalty=1.5),
    replace(PLAIN, no_repeat_ngram_size=1, encoder_no_repeat_ngram_size=2),
    replace(PLAIN, no_repeat_ngram_size=3, repetition_penalty=1.2, encoder_repetition_penalty=0.7),
    replace(PLAIN, bad_words=((5,), (3,), (11, 4)), suppress_tokens=(7, 20), begin_suppress_tokens=(6, 9, 11, 14)),
    replace(
        PLAIN,
        sequence_bias=(((5,), 2.0), ((4, 6), -3.0), ((12, 3), 4.0)),
        min_new_tokens=9,
        exponential_decay_start=4,
        exponential_decay_length_penalty=1.05,
    ),
    replace(PLAIN, target_prefix=(21, 15), repetition_penalty=1.5, begin_suppress_tokens=(3, 4)),
    replace(
        PLAIN,
        forced_bos_token=(13,),
        begin_suppress_tokens=(3, 4, 5),
        exponential_decay_start=2,
        exponential_decay_length_penalty=0.9,
    ),
]
ALL = [replace(one, num_beams=beams, num_return_sequences=beams) for one, beams in product(OPTIONS, (1, 4))]
MIXES = 24
NAMED = range(3, 60)
"""Tokens that random combinations name."""


def mixed(chance: random.Random) -> Decoding:
    """A random combination: of what may be said and how often, of lengths and of beams."""

    def phrases(most: int) -> tuple[Tokens, ...]:
        return tuple({tuple(chance.sample(NAMED, chance.randint(1, 3))): None for _ in range(most)})

    values: Options = {
        "min_new_tokens": chance.randint(1, 12),
        "exponential_decay_length_penalty": chance.choice([0.8, 0.95, 1.02, 1.1]),
        "exponential_decay_start": chance.randint(0, 8),
        "repetition_penalty": chance.uniform(0.8, 1.6),
        "no_repeat_ngram_size": chance.randint(1, 4),
        "encoder_repetition_penalty": chance.uniform(0.7, 1.6),
        "encoder_no_repeat_ngram_size": chance.randint(1, 3),
        "bad_words": phrases(5),
        "sequence_bias": tuple((phrase, chance.uniform(-5, 5)) for phrase in phrases(5)),
        "suppress_tokens": tuple(chance.sample(NAMED, 6)),
        "begin_suppress_tokens": tuple(chance.sample(NAMED, 6)),
        "target_prefix": tuple(chance.sample(NAMED, 2)),
        "forced_bos_token": (chance.choice(NAMED),),
        "length_penalty": chance.choice([0.0, 0.6, 2.0]),
        "early_stopping": chance.choice([True, "never"]),
    }
    beams, chosen = chance.choice([1, 1, 2, 4]), {name: values[name] for name in values if chance.random() < 0.4}
    if {"forced_bos_token", "suppress_tokens"} <= chosen.keys():
        del chosen["forced_bos_token"]  # which may be one of them
    return replace(PLAIN, num_beams=beams, num_return_sequences=beams, max_new_tokens=chance.randint(13, 30), **chosen)


MIXED = tuple(mixed(random.Random(seed)) for seed in range(MIXES))


@pytest.mark.parametrize("kernels", ["off", "auto"])
def test_real_sentences(zoo_package: Package, kernels: Kernels) -> None:
    assert real(zoo_package, kernels, SENTENCES) == (len(ALL) * SENTENCES, len(ALL) * SENTENCES)


@pytest.mark.parametrize("kernels", ["off", "auto"])
def test_random_combinations_of_real_sentences(zoo_package: Package, kernels: Kernels) -> None:
    assert real(zoo_package, kernels, 1, MIXED) == (len(MIXED), len(MIXED))


def test_random_weights(tmp_path: Path) -> None:
    asked = tuple({**dict.fromkeys(ALL), **dict.fromkeys(MIXED)})
    assert of_random_weights(tmp_path, SENTENCES, asked) == (len(asked) * SENTENCES, len(asked) * SENTENCES)


def test_a_decoder_without_whole_rows_refuses_them() -> None:
    request = ((3, 4, 0), replace(PLAIN, repetition_penalty=2.0))
    with Runner(CopyDecoder(), 4, 1, Unobserved()) as runner, pytest.raises(NotOffered, match="export the checkpoint"):
        list(decode(runner, TargetRules((0,), frozenset({0})), [request]))


def real(package: Package, kernels: Kernels, sentences: int, asked: Sequence[Decoding] = ALL) -> tuple[int, int]:
    """How many answers of a package of models/zoo/en-pt are those of `generate`, and of how many."""
    tokenizer, loadable = package.tokenizer(), Loadable.of(package)
    texts = [english for english, _ in flores()]
    sources = [tuple(tokenizer.encode(text)) for text in texts[:: len(texts) // sentences][:sentences]]
    with closing(open_decoder(loadable, CPU, 512, 512, kernels)) as decoder:
        return compare(decoder, loadable.rules, generated(ZOO, tuple(sources), tuple(asked)))


def of_random_weights(folder: Path, sentences: int, asked: Sequence[Decoding] = ALL) -> tuple[int, int]:
    """The same of a BART with an odd shape."""
    trained = read(write_family(folder, BART_LIKE["bart"]))
    sources = random_sources(sentences, trained.config.end_id)
    with closing(CpuDecoder(save(trace(trained.model), folder), LONGEST, LONGEST)) as decoder:
        rules = target_rules(decoder.spec.vocabulary, trained.generation)
        return compare(decoder, rules, generated(folder, tuple(sources), tuple(asked)))


@cache
def generated(
    folder: Path, sources: tuple[Tokens, ...], asked: tuple[Decoding, ...]
) -> Mapping[tuple[Tokens, Decoding], Scored]:
    """What transformers makes of every source with each of the options."""
    huggingface = HuggingFace(folder)
    answers = {options: huggingface.generate(sources, options) for options in asked}
    return {(source, options): answers[options][at] for options in asked for at, source in enumerate(sources)}


def compare(
    decoder: Decoder[Any], rules: TargetRules, expected: Mapping[tuple[Tokens, Decoding], Scored]
) -> tuple[int, int]:
    """Asks for all of them in any order. How many are equal, and of how many."""
    requests = list(expected)
    random.Random(1).shuffle(requests)
    with Runner(decoder, 48, 2, Unobserved()) as runner:
        answers = list(decode(runner, rules, requests, window=len(requests)))
    equal = [is_equal(answer.hypotheses, expected[one]) for answer, one in zip(answers, requests, strict=True)]
    return sum(equal), len(equal)


def is_equal(ours: Sequence[Hypothesis], theirs: Scored) -> bool:
    """Tokens and, with beams, scores: greedy search has none in `generate` once they are changed."""
    scores = [(one.score, score) for one, (_, score) in zip(ours, theirs, strict=True)] if len(ours) > 1 else []
    return [one.token_ids for one in ours] == [tokens for tokens, _ in theirs] and all(
        abs(one - other) < TOLERANCE for one, other in scores
    )


def main() -> None:
    torch.set_num_threads(1)
    sentences, package = int(sys.argv[1]), Package.open(Path(sys.argv[2]))
    for kernels in ("off", "auto"):
        equal, of = real(package, kernels, sentences)
        print(f"en-pt, kernels {kernels}: {equal} of {of} equal")
    with TemporaryDirectory() as folder:
        equal, of = of_random_weights(Path(folder), sentences)
        print(f"random weights: {equal} of {of} equal")


if __name__ == "__main__":
    main()
