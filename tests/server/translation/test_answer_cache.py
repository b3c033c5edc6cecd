"""server.translation.sharing.answer_cache: what is kept, in how many bytes, and what makes room."""

import gc
import tracemalloc
import weakref
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from engine.request import FinishReason, Hypothesis
from models.decoding import Decoding
from models.tokenizers.target_texts import Pieces
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.translation.sharing.answer_cache import AnswerCache, Question, packed
from tests.fakes import rules_of

RULES = rules_of(0)
ANSWER = (
    Hypothesis((7, 65_000, 0), -0.5, FinishReason.END_TOKEN, log_prob=-1.5),
    Hypothesis((7, 8), -1.25, FinishReason.LENGTH, (-0.1, -1.15)),
)


def question(*source_ids: int, package: str = "ab") -> Question:
    return Question(package, Decoding(), RULES, packed(source_ids))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def cache_of(size: int, registry: CollectorRegistry) -> AnswerCache:
    return AnswerCache(size, AnswerCacheMetrics(registry))


def counts(registry: CollectorRegistry) -> list[float | None]:
    """Hits, misses, evictions."""
    names = ("hits_total", "misses_total", "evictions_total")
    return [registry.get_sample_value(f"dragoman_answer_cache_{name}") for name in names]


def test_an_answer_comes_back_as_it_was(registry: CollectorRegistry) -> None:
    cache = cache_of(10_000, registry)
    assert cache.get(question(1, 2)) is None
    cache.put(question(1, 2), ANSWER)
    assert cache.get(question(1, 2)) == ANSWER
    assert counts(registry) == [1, 1, 0]


@pytest.mark.parametrize(
    "other",
    [
        question(2, 1),
        question(1, 2, 0),
        question(1, 2, package="cd"),
        replace(question(1, 2), decoding=Decoding(num_beams=2)),
        replace(question(1, 2), decoding=Decoding(max_new_tokens=9)),
        replace(question(1, 2), decoding=Decoding(length_penalty=0.6)),
        replace(question(1, 2), rules=rules_of(0, forced_end_id=0)),
    ],
)
def test_whatever_is_asked_otherwise_has_another_answer(other: Question, registry: CollectorRegistry) -> None:
    cache = cache_of(10_000, registry)
    cache.put(question(1, 2), ANSWER)
    assert cache.get(other) is None


def test_those_that_nobody_asked_for_the_longest_make_room(registry: CollectorRegistry) -> None:
    cache = cache_of(10_000, registry)
    cache.put(question(0), ANSWER)
    size = registry.get_sample_value("dragoman_answer_cache_bytes")
    assert size is not None
    room = int(10_000 // size)
    for number in range(1, room):
        cache.put(question(number), ANSWER)
    assert cache.get(question(0)) == ANSWER  # so 1 is the oldest
    cache.put(question(room), ANSWER)
    assert [cache.get(question(number)) is not None for number in range(room + 1)] == [
        number != 1 for number in range(room + 1)
    ]
    assert counts(registry)[2] == 1
    assert registry.get_sample_value("dragoman_answer_cache_bytes") == room * size
    assert registry.get_sample_value("dragoman_answer_cache_capacity_bytes") == 10_000


def test_an_answer_that_is_larger_than_all_the_room_is_not_kept(registry: CollectorRegistry) -> None:
    cache = cache_of(2_000, registry)
    cache.put(question(1), ANSWER)
    cache.put(question(2), (Hypothesis(tuple(range(600)), -1.0, FinishReason.LENGTH),))
    assert cache.get(question(2)) is None
    assert cache.get(question(1)) == ANSWER


def test_nothing_is_kept_nor_counted_without_room(registry: CollectorRegistry) -> None:
    cache = cache_of(0, registry)
    cache.put(question(1), ANSWER)
    assert cache.get(question(1)) is None
    assert counts(registry) == [0, 0, 0]


@pytest.mark.parametrize(("tokens", "hypotheses"), [(5, 1), (30, 1), (30, 4), (400, 1)])
def test_the_size_is_what_python_takes(tokens: int, hypotheses: int, registry: CollectorRegistry) -> None:
    """Not more than a tenth over it, and not less than half of it."""
    limit = 1_000_000
    cache = cache_of(limit, registry)

    def put(number: int) -> None:
        source = tuple(range(number, number + tokens))
        asked = Question("ab" * 32, Decoding(length_penalty=1.0 + number), RULES, packed(source))
        found = tuple(Hypothesis(source, -0.5 * number - rank, FinishReason.END_TOKEN) for rank in range(hypotheses))
        cache.put(asked, found)

    gc.collect()
    tracemalloc.start()
    try:
        for number in range(4_000):
            put(number)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    evictions = counts(registry)[2]
    assert evictions is not None and evictions > 0
    assert limit / 2 < taken < 1.1 * limit, taken


def test_answers_of_a_package_that_serves_no_more_leave_with_what_they_hold(registry: CollectorRegistry) -> None:
    cache, tokenizer = cache_of(10_000, registry), Pieces(list)
    held = weakref.ref(tokenizer)
    cache.put(replace(question(1), rules=replace(RULES, pieces=tokenizer)), ANSWER)
    cache.put(question(1, package="cd"), ANSWER)
    both = registry.get_sample_value("dragoman_answer_cache_bytes")
    del tokenizer
    cache.forget("ab")
    assert held() is None
    assert cache.get(question(1)) is None
    assert cache.get(question(1, package="cd")) == ANSWER
    assert both == 2 * (registry.get_sample_value("dragoman_answer_cache_bytes") or 0)
