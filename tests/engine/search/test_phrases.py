"""Phrases that targets must have: the automata, and beam search against all targets there are."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.request import FinishReason
from engine.search.phrases import Progress, phrases_of, side_by_side
from models.decoding import Decoding
from tests.engine.search.searching import END, LanguageModel, Prefix, random_model, run
from tests.fakes import rules_of

VOCABULARY = 4
phrases = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple), min_size=1, max_size=4).map(tuple)
targets = st.lists(st.integers(1, 3), max_size=14)


def occurrences(phrase: Prefix, target: Sequence[int]) -> int:
    size = len(phrase)
    return sum(tuple(target[start : start + size]) == phrase for start in range(len(target) - size + 1))


def has_all(target: Sequence[int], wanted: Sequence[Prefix]) -> bool:
    return all(occurrences(phrase, target) >= count for phrase, count in Counter(wanted).items())


@given(wanted=phrases, target=targets)
def test_phrases_are_missing_until_they_have_occurred_as_often_as_wanted(
    wanted: tuple[Prefix, ...], target: list[int]
) -> None:
    automata = phrases_of(wanted)
    progress = automata.start(())
    for end in range(len(target) + 1):
        seen, counts = target[:end], Counter(wanted)
        missing = [max(0, count - occurrences(phrase, seen)) for phrase, count in counts.items()]
        assert progress.missing.tolist() == missing
        begun = [longest_beginning(phrase, seen) for phrase in counts]
        assert progress.begun.tolist() == begun
        have = sum(len(phrase) * (counts[phrase] - one) for phrase, one in zip(counts, missing, strict=True))
        on_the_way = max((one for one, left in zip(begun, missing, strict=True) if left), default=0)
        assert automata.met(progress) == have + on_the_way
        assert bool(automata.met(progress) == automata.most) is has_all(seen, wanted)
        if end < len(target):
            progress = automata.follow(progress, np.array(target[end]))


def longest_beginning(phrase: Prefix, target: Sequence[int]) -> int:
    """How many tokens of the phrase the target ends with, at most all but one."""
    sizes = range(min(len(phrase) - 1, len(target)), 0, -1)
    return next((size for size in sizes if tuple(target[-size:]) == phrase[:size]), 0)


@given(searches=st.lists(st.tuples(phrases, targets), min_size=1, max_size=4))
def test_searches_side_by_side_are_as_each_alone(searches: list[tuple[tuple[Prefix, ...], list[int]]]) -> None:
    each = [phrases_of(wanted) for wanted, _ in searches]
    together = side_by_side(each)
    progress, alone = together.start((len(searches), 1)), [one.start((1,)) for one in each]
    for place in range(max(len(target) for _, target in searches)):
        tokens = np.array([[(target[place : place + 1] or [END])[0]] for _, target in searches])
        progress = together.follow(progress, tokens)
        alone = [one.follow(before, of) for one, before, of in zip(each, alone, tokens, strict=True)]
        for search, (one, own) in enumerate(zip(each, alone, strict=True)):
            count = len(one.lengths)
            mine = Progress(progress.begun[search][:, :count], progress.missing[search][:, :count])
            assert [array.tolist() for array in mine] == [array.tolist() for array in own]
            assert together.next(progress)[search][:, :count].tolist() == one.next(own).tolist()
            assert together.met(progress)[search] == one.met(own) and together.most[search] == one.most


@dataclass(frozen=True)
class Case:
    """A tiny model, and what its targets must have."""

    seed: int
    longest: int
    wanted: tuple[Prefix, ...]
    length_penalty: float

    @property
    def model(self) -> LanguageModel:
        return remembered(self.seed)

    def decoding(self, num_beams: int) -> Decoding:
        return Decoding(num_beams, 1, self.longest, self.length_penalty, "never", must_include=self.wanted)


@cache
def remembered(seed: int) -> LanguageModel:
    model = random_model(VOCABULARY, seed, random.Random(seed).choice([-1.0, 0.0, 2.0]))
    row = cache(lambda prefix: model([prefix])[0])
    return lambda prefixes: [row(prefix) for prefix in prefixes]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    wanted = draw(phrases.filter(lambda found: sum(map(len, found)) <= 5))
    longest = draw(st.integers(sum(map(len, wanted)), 5))
    return Case(draw(st.integers(0, 50)), longest, wanted, draw(st.sampled_from([0.0, 1.0])))


def best_of_all(case: Case) -> Prefix:
    """The best of all targets that have the phrases."""
    ended = ((*ids, END) for size in range(case.longest) for ids in product(range(1, VOCABULARY), repeat=size))
    cut = product(range(1, VOCABULARY), repeat=case.longest)
    fitting = (target for target in (*ended, *cut) if has_all(target, case.wanted))
    return max(fitting, key=lambda target: score_of(case, target))


def score_of(case: Case, target: Prefix) -> float:
    rows = case.model([target[:end] for end in range(len(target))])
    total = sum(row[token] for row, token in zip(rows, target, strict=True))
    return float(total / len(target) ** case.length_penalty)


@settings(max_examples=60)
@given(case=cases())
def test_wide_beams_find_the_best_of_all_targets_that_have_the_phrases(case: Case) -> None:
    [found] = run(case.decoding(400), rules_of(END), case.model).hypotheses
    assert found.token_ids == best_of_all(case)
    assert found.score == pytest.approx(score_of(case, found.token_ids), abs=1e-5)


@settings(max_examples=100)
@given(case=cases(), num_beams=st.integers(2, 6), forced=st.booleans())
def test_every_hypothesis_has_the_phrases(case: Case, num_beams: int, forced: bool) -> None:
    """Though the limit may leave room for nothing else."""
    returned = Decoding(
        num_beams, num_beams, case.longest + forced, case.length_penalty, must_include=case.wanted, with_tokens=True
    )
    result = run(returned, rules_of(END, END if forced else None), case.model)
    assert result.hypotheses
    for found in result.hypotheses:
        assert has_all(found.token_ids, case.wanted)
        assert sum(found.log_probs) / len(found.token_ids) ** case.length_penalty == pytest.approx(found.score)
    best = result.hypotheses[0].token_ids
    assert all(best[: len(settled)] == settled for settled in result.settled)
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(result.settled))


def test_what_cannot_be_had_ends_at_the_limit() -> None:
    """A token of no probability: another option forbids it, for one."""

    def model(prefixes: Sequence[Prefix]) -> list[list[float]]:
        return [[-0.1, -2.4, -np.inf] for _ in prefixes]

    decoding = Decoding(2, 2, 6, must_include=((2,), (1,)))
    found = run(decoding, rules_of(END), model).hypotheses
    assert [(one.token_ids, one.finish_reason) for one in found] == [((1,) * 6, FinishReason.LENGTH)]


def test_a_prefix_may_have_a_part_of_a_phrase() -> None:
    model = random_model(5, 7)
    decoding = Decoding(3, 3, 4, target_prefix=(3, 1), must_include=((1, 2), (3,)))
    found = run(decoding, rules_of(END), model).hypotheses
    assert all(has_all((3, 1, *one.token_ids), decoding.must_include) for one in found)
    assert any(one.token_ids[0] == 2 for one in found)
    assert not any(has_all(one.token_ids, decoding.must_include) for one in found)


def test_an_end_token_is_not_chosen_before_the_least_number_of_tokens() -> None:
    rules = rules_of(END)
    least = type(rules)(rules.prefix_ids, rules.end_ids, min_tokens=4)
    found = run(Decoding(3, 3, 9, must_include=((2,),)), least, random_model(5, 3, end_bias=4.0)).hypotheses
    assert all(len(one.token_ids) > 4 and 2 in one.token_ids for one in found)
