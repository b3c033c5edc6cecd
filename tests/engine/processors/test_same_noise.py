"""Given the noise, sampling draws the tokens that `generate` draws by it, with penalties and warpers at once."""

import random
from contextlib import closing
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.devices.session import CPU
from engine.loading.load import Kernels, Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.processors.processed import Processed
from engine.processors.sampling import draw
from engine.runner import Runner
from models.decoding import Decoding, Options
from models.package.folder import Package
from tests.checkpoints import ZOO, flores
from tests.oracles import HuggingFace, Tokens

MIXES = 8
SAMPLED = Decoding(max_new_tokens=24, do_sample=True)


def mixed(seed: int) -> Decoding:
    """A random combination of what is drawn from, and what was done to the scores before."""
    chance = random.Random(seed)
    values: Options = {
        "temperature": chance.uniform(0.5, 2.0),
        "top_k": chance.choice([0, 3, 20]),
        "top_p": chance.uniform(0.5, 0.95),
        "min_p": chance.uniform(0.01, 0.3),
        "top_h": chance.uniform(0.3, 0.9),
        "typical_p": chance.uniform(0.5, 0.95),
        "epsilon_cutoff": chance.uniform(0.001, 0.1),
        "eta_cutoff": chance.uniform(0.001, 0.1),
        "repetition_penalty": chance.uniform(0.9, 1.5),
        "no_repeat_ngram_size": 2,
        "encoder_repetition_penalty": chance.uniform(0.9, 1.3),
        "min_new_tokens": 8,
        "bad_words": ((4,), (11, 4)),
        "sequence_bias": (((5,), 2.0), ((4, 6), -3.0)),
    }
    chosen = {name: values[name] for name in values if chance.random() < 0.35}
    return replace(SAMPLED, num_return_sequences=chance.choice([1, 1, 3]), seed=seed, **chosen)


Drawn = dict[tuple[Tokens, Decoding], tuple[Tokens, ...]]
"""Of a source and options, the tokens of each sample."""


@pytest.fixture(scope="module")
def expected(loadable: Loadable) -> Drawn:
    tokenizer, oracle = Package.open(ZOO).tokenizer(), HuggingFace(ZOO)
    sources = [tuple(tokenizer.encode(english)) for english, _ in flores()[:100:50]]
    found = Drawn()
    for source, decoding in product(sources, map(mixed, range(MIXES))):
        samples = range(decoding.num_return_sequences)
        noises = (noise(decoding, loadable, source, sample) for sample in samples)
        found[source, decoding] = tuple(drawn(oracle, source, decoding, one) for one in noises)
    return found


def noise(decoding: Decoding, loadable: Loadable, source: Tokens, sample: int) -> NDArray[np.float64]:
    processed = Processed.of(decoding, loadable.rules, source, sample)
    assert processed is not None and processed.noise is not None
    return processed.noise


def drawn(oracle: HuggingFace, source: Tokens, decoding: Decoding, noise: NDArray[np.float64]) -> Tokens:
    """What `generate` makes of it where its draws are by this noise: the best token lies lowest."""
    places = iter(noise)

    def multinomial(probabilities: Tensor, num_samples: int) -> Tensor:
        order = probabilities.sort(descending=True, stable=True)
        column = draw(order.values.double().numpy(), np.array([next(places)]))
        return order.indices[0, torch.from_numpy(column)][None]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "multinomial", multinomial)
        [[(tokens, _)]] = oracle.generate([source], replace(decoding, num_return_sequences=1))
    return tokens


@pytest.mark.parametrize("kernels", ["off", "auto"])
def test_the_same_tokens(kernels: Kernels, loadable: Loadable, expected: Drawn) -> None:
    requests = list(expected)
    with (
        closing(open_decoder(loadable, CPU, 512, 512, kernels)) as decoder,
        Runner(decoder, 32, 2, Unobserved()) as runner,
    ):
        answers = list(decode(runner, loadable.rules, requests, window=len(requests)))
    for request, answer in zip(requests, answers, strict=True):
        assert tuple(one.token_ids for one in answer.hypotheses) == expected[request], request[1]
