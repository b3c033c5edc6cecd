"""Diverse beam search finds what Hugging Face finds, in any batch."""

import random
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.devices.session import CPU
from engine.loading.load import Kernels, Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Hypothesis
from engine.runner import Runner
from engine.search.beam_rows import BeamRows
from models.decoding import Decoding
from tests.engine.search.group_cases import END, PAD, Answer, Case, Tokens, model_of, recorded
from tests.engine.search.searching import LanguageModel, Prefix, found, random_model, run, top
from tests.fakes import rules_of

ALL = recorded()
OF_ZOO = [case for case in ALL if case.seed is None]
TOLERANCE = 2e-3
"""Of scores with real weights: our own operators sum up a row of exponentials in another way (decision 22)."""


@cache
def language_model(seed: int, source: Tokens) -> LanguageModel:
    """The decoder of a random model without a cache."""
    model, known = model_of(seed), dict[Prefix, list[float]]()
    with torch.inference_mode():
        memory = model.get_encoder()(torch.tensor([source])).last_hidden_state

    def log_probs(prefixes: Sequence[Prefix]) -> list[list[float]]:
        if new := [prefix for prefix in prefixes if prefix not in known]:
            ids = torch.tensor([(PAD, *prefix) for prefix in new])
            with torch.inference_mode():
                memories = memory.expand(len(new), -1, -1)
                logits = model(encoder_outputs=(memories,), decoder_input_ids=ids).logits[:, -1]
            known.update(zip(new, logits.log_softmax(-1).tolist(), strict=True))
        return [known[prefix] for prefix in prefixes]

    return log_probs


@pytest.mark.parametrize("max_new_tokens", [1, 2, 7, 24])
def test_random_weights(max_new_tokens: int) -> None:
    for case, answer in ALL.items():
        if case.seed is not None and case.decoding.max_new_tokens == max_new_tokens:
            result = run(
                case.decoding, rules_of(END, case.forced_end_id, (PAD,)), language_model(case.seed, case.source)
            )
            check(result.hypotheses, answer, case)


def check(ours: Sequence[Hypothesis], theirs: Answer, case: Case, tolerance: float = 1e-4) -> None:
    assert [one.token_ids for one in ours] == [tokens for tokens, _ in theirs], case
    assert [one.score for one in ours] == pytest.approx([score for _, score in theirs], abs=tolerance), case


@pytest.mark.parametrize("kernels", ["off", "auto"])
def test_real_sentences_among_all_kinds_of_others(loadable: Loadable, kernels: Kernels) -> None:
    """In one running batch, whose rows are as many as the largest requests need together."""
    others = [
        Decoding(max_new_tokens=40),
        Decoding(3, 3, 40),
        Decoding(4, 4, 40, no_repeat_ngram_size=2, num_beam_groups=2, diversity_penalty=0.7),
        Decoding(max_new_tokens=40, do_sample=True, seed=3, num_return_sequences=2),
    ]
    requests = [(case.source, case.decoding) for case in OF_ZOO]
    requests += [(case.source, other) for case in OF_ZOO[:3] for other in others]
    random.Random(3).shuffle(requests)
    with closing(open_decoder(loadable, CPU, 128, 128, kernels)) as decoder:
        with Runner(decoder, 32, 1, Unobserved()) as runner:
            together = dict(zip(requests, decode(runner, loadable.rules, requests, window=len(requests)), strict=True))
        with Runner(decoder, 8, 1, Unobserved()) as runner:
            some = [(case.source, other) for case in OF_ZOO[:3] for other in others]
            alone = dict(zip(some, decode(runner, loadable.rules, some, window=1), strict=True))
    for case in OF_ZOO:
        check(together[case.source, case.decoding].hypotheses, ALL[case], case, TOLERANCE)
    for request, answer in alone.items():
        assert [one.token_ids for one in together[request].hypotheses] == [one.token_ids for one in answer.hypotheses]


def test_one_group_after_another_pays() -> None:
    """By hand: two groups of one. Token 4 costs the second 1.0 more, once the first has it, and 5 is better then."""

    def model(prefixes: Sequence[Prefix]) -> list[list[float]]:
        return [[-9.0, -9, -9, -9, -0.5, -1.0] if len(prefix) < 2 else [0.0, *[-9.0] * 5] for prefix in prefixes]

    decoding = Decoding(2, 2, 4, 0.0, num_beam_groups=2, diversity_penalty=1.0, with_tokens=True)
    result = run(decoding, rules_of(END), model)
    assert [(one.token_ids, one.log_probs) for one in result.hypotheses] == [
        ((4, 4, END), (-0.5, -0.5, 0.0)),
        ((5, 5, END), (-1.0, -1.0, 0.0)),
    ]


def test_a_search_that_has_not_begun_waits_in_its_one_row() -> None:
    """Another one leaves before its first step."""
    model, rules = random_model(9, 1), rules_of(END)
    decoding = Decoding(4, 4, 5, num_beam_groups=2, diversity_penalty=1.0)
    rows = BeamRows()
    leaving, staying = rows.search(0, decoding, rules), rows.search(1, decoding, rules)
    rows.drop(leaving)
    rows.stay(np.array([7, 8]))
    assert (rows.parents.tolist(), rows.tokens.tolist(), rows.resized) == ([1], [8], {})
    rows.place(np.array([0]))
    prefixes: list[Prefix] = [()]
    over: dict[int, tuple[Hypothesis, ...]] = {}
    while not over:
        scores = model(prefixes)
        ids = [top(row, rows.ask.best) for row in scores]
        step = found(ids, [[row[token] for token in of] for row, of in zip(scores, ids, strict=True)])
        rows.append(step)
        over = rows.settle(step)
        prefixes = [
            (*prefixes[parent], token)
            for parent, token in zip(rows.parents.tolist(), rows.tokens.tolist(), strict=True)
        ]
        assert rows.resized in ({}, {staying: len(prefixes)})
        rows.place(np.arange(len(prefixes)))
    assert over == {staying: run(decoding, rules, model).hypotheses}


@given(groups=st.sampled_from([(2, 2), (4, 2), (6, 3), (4, 4)]), seed=st.integers(0, 1000), most=st.integers(1, 8))
@settings(deadline=None, max_examples=40)
def test_settled_tokens_and_candidates(groups: tuple[int, int], seed: int, most: int) -> None:
    """What is settled is never taken back, and more candidates than are asked for change nothing."""
    model, rules = random_model(7, seed, 1.0), rules_of(END, None, (6,))
    decoding = Decoding(groups[0], groups[0], most, num_beam_groups=groups[1], diversity_penalty=0.3)
    result = run(decoding, rules, model)
    assert result == run(decoding, rules, model, surplus=2)
    for before, after in pairwise(result.settled):
        assert after[: len(before)] == before
    assert result.live[-1] == 0 and max(result.live) <= groups[0]
