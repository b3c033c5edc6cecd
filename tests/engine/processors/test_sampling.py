"""What may be drawn, and how likely, is as in Hugging Face's warpers; what is drawn depends on the noise alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from engine.decoder import Ask, Found
from engine.processors.drawing import UNDECIDED, Known, draw_of_known
from engine.processors.processed import Processed
from engine.processors.repetition import NoRepeatNGram
from engine.processors.sampling import Sampling, draw
from engine.processors.stage import ProcessorStage
from engine.targets import TargetRules
from models.decoding import Decoding

VOCABULARY, DRAWS = 40, 20_000
OFF = {"top_p": 1.0, "min_p": 0.0, "top_h": 0.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0}


def shares(low: float, high: float, off: float) -> st.SearchStrategy[float]:
    return st.just(off) | st.floats(low, high)


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.floats(0.3, 3.0),
    top_k=st.sampled_from([0, 1, 5, 30]),
    top_p=shares(0.05, 0.99, 1.0),
    min_p=shares(0.01, 0.9, 0.0),
    top_h=shares(0.05, 0.95, 0.0),
    typical_p=shares(0.05, 0.95, 1.0),
    epsilon_cutoff=shares(0.001, 0.2, 0.0),
    eta_cutoff=shares(0.001, 0.2, 0.0),
)


def expected(sampling: Sampling, scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Probabilities of Hugging Face's [vocabulary]."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_h:
        warpers.append(TopHLogitsWarper(sampling.top_h))
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    if sampling.typical_p < 1:
        warpers.append(TypicalLogitsWarper(sampling.typical_p))
    if sampling.epsilon_cutoff:
        warpers.append(EpsilonLogitsWarper(sampling.epsilon_cutoff))
    if sampling.eta_cutoff:
        warpers.append(EtaLogitsWarper(sampling.eta_cutoff))
    # In fp64: what stands at a threshold is not decided by rounding.
    warped: Tensor = warpers(None, torch.from_numpy(scores.astype(np.float64))[None])
    probabilities: NDArray[np.float64] = warped[0].softmax(0).numpy()
    return probabilities


@settings(max_examples=1000, deadline=None)
@given(sampling=SAMPLINGS, seed=st.integers(0, 999), spread=st.floats(0.1, 5.0))
def test_probabilities_are_those_of_transformers(sampling: Sampling, seed: int, spread: float) -> None:
    scores = np.random.default_rng(seed).normal(0, spread, VOCABULARY).astype(np.float32)
    order = np.argsort(-scores)[: sampling.wanted or None]
    found = np.zeros(VOCABULARY)
    found[order] = sampling.probabilities(scores[None, order])[0]
    np.testing.assert_allclose(found, expected(sampling, scores), atol=1e-6)


def off(drawn: NDArray[Any], probabilities: NDArray[np.float64]) -> float:
    """Pearson's chi-squared, less what is to be expected of it, in its standard deviations."""
    wanted = drawn.sum() * probabilities[probabilities > 0]
    freedom = len(wanted) - 1
    return float((((drawn[probabilities > 0] - wanted) ** 2 / wanted).sum() - freedom) / np.sqrt(2 * freedom))


def test_columns_are_drawn_as_often_as_they_are_likely() -> None:
    probabilities = np.array([0.5, 0.0, 0.3, 0.15, 0.05, 0.0])
    noise = np.random.default_rng(5).random(DRAWS)
    drawn = np.bincount(draw(np.tile(probabilities, (DRAWS, 1)), noise), minlength=6)
    assert (drawn[probabilities == 0] == 0).all()
    assert off(drawn, probabilities) < 4


def test_the_ends_of_the_noise() -> None:
    probabilities = np.array([[0.0, 0.4, 0.6, 0.0]] * 2)
    assert draw(probabilities, np.array([0.0, np.nextafter(1.0, 0.0)])).tolist() == [1, 2]


def test_tokens_of_a_stage_are_drawn_as_often_as_they_are_likely() -> None:
    """After a processor, without what a row cannot have, by seeds: the exact distribution."""
    rows = 200
    chance = np.random.default_rng(1)
    logits = chance.normal(0, 1.5, VOCABULARY).astype(np.float32)
    rules = TargetRules((7,), frozenset({0}), suppressed_ids=frozenset({3}), min_tokens=1)
    decoding = Decoding(max_new_tokens=100, do_sample=True, top_k=20, temperature=1.3, no_repeat_ngram_size=1)
    log_probs = logits - np.log(np.exp(logits).sum())
    order = np.argsort(-logits)
    left = logits.copy()
    left[[0, 3, 7]] = -np.inf
    probabilities = expected(Sampling(1.3, 20, **OFF), left)
    drawn = np.zeros(VOCABULARY)
    for start in range(0, DRAWS, rows):
        stage = ProcessorStage(rows)
        processed = [processed_with(decoding, rules, seed) for seed in range(start, start + rows)]
        for row, one in enumerate(processed):
            stage.begin(one)
            stage.start(row)
        stage.feed(np.full(rows, 7))
        best = order[: stage.ask(Ask()).best]
        token_ids = np.tile(best, (rows, 1))
        found = Found(token_ids, log_probs[token_ids], logits=lambda which: np.tile(logits, (len(which), 1)))
        told = stage.process(found, processed)
        np.testing.assert_allclose(told.log_probs[:, 0], log_probs[told.token_ids[:, 0]], rtol=1e-5)
        drawn += np.bincount(told.token_ids[:, 0], minlength=VOCABULARY)
    likely = probabilities > 0
    assert not drawn[~likely].any()
    assert off(drawn, probabilities) < 4


@settings(max_examples=1000, deadline=None)
@given(
    sampling=st.builds(
        Sampling,
        temperature=st.sampled_from([0.3, 0.7, 1.0, 1.5, 3.0]),
        top_k=st.sampled_from([0, 1, 5, 30]),
        top_p=shares(0.05, 0.99, 1.0),
        min_p=shares(0.01, 0.9, 0.0),
        top_h=st.just(0.0),
        typical_p=st.just(1.0),
        epsilon_cutoff=st.just(0.0),
        eta_cutoff=st.just(0.0),
    ),
    seed=st.integers(0, 999),
    spread=st.floats(0.1, 5.0),
    some=st.integers(1, VOCABULARY),
)
def test_what_the_best_tokens_decide_is_what_all_decide(
    sampling: Sampling, seed: int, spread: float, some: int
) -> None:
    """Whatever the noise, also where some tokens are lowered and some are barred."""
    chance, rows = np.random.default_rng(seed), 50
    given = np.sort(chance.normal(0, spread, VOCABULARY))[::-1]
    given = given - np.log(np.exp(given).sum())
    left = np.where(chance.random(VOCABULARY) < 0.2, given - chance.exponential(spread, VOCABULARY), given)
    lowered = bool(seed % 2)
    left = left if lowered else given.copy()
    barred = chance.permutation(VOCABULARY)[: seed % 3]
    left[barred] = -np.inf
    noise = chance.random(rows)
    order = np.argsort(-left, kind="stable")
    all_scores = left[order][None, : sampling.wanted or None].astype(np.float32)
    if not np.isfinite(all_scores).any():
        return
    expected = order[draw(np.repeat(sampling.probabilities(all_scores), rows, 0), noise)]
    ordered = np.argsort(-left[:some], kind="stable")
    others = np.full(rows, 1 - np.exp(given[:some]).sum())
    known = Known(
        np.tile(left[ordered], (rows, 1)),
        np.full(rows, given[some - 1]),
        others + chance.uniform(-0.01, 0.01),
        0.01,
        lowered,
        np.full(rows, len(barred)),
    )
    drawn = draw_of_known(sampling, known, noise)
    decided = drawn != UNDECIDED
    assert (ordered[drawn[decided]] == expected[decided]).all()


def test_few_likely_tokens_mostly_decide() -> None:
    """Nearly always, where they have most of the probability."""
    scores, rows = np.log([0.62, 0.2, 0.1, 0.04, 0.01, 0.005, 0.001, 0.0005]), 1000
    known = Known(
        np.tile(scores, (rows, 1)),
        np.full(rows, scores[-1]),
        np.full(rows, 1 - np.exp(scores).sum()),
        0.01,
        False,
        np.zeros(rows),
    )
    noise = np.random.default_rng(2).random(rows)
    for top_p, top_k, most in ((0.9, 0, 0.01), (0.9, 50, 0.01), (1.0, 50, 0.12), (1.0, 0, 0.12)):
        drawn = draw_of_known(Sampling(1.0, top_k, **OFF | {"top_p": top_p}), known, noise)
        assert (drawn == UNDECIDED).mean() < most


def processed_with(decoding: Decoding, rules: TargetRules, seed: int) -> Processed:
    found = Processed.of(replace(decoding, seed=seed), rules, (4, 2))
    assert found is not None and found.chain == (NoRepeatNGram(1),)
    return found
