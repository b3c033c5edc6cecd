"""Targets are scored a part at a time, beside rows that decode, and every request has its answer."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from engine.batch.running_batch import RunningBatch
from engine.errors import Late, NotFinite, NotOffered, OutOfMemory
from engine.observer import Unobserved
from engine.request import Event, Failed, Finished, Request, Score, Scored, Translate
from engine.runner import Runner
from models.decoding import Decoding
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from tests.fakes import BEST, SECOND, CopyDecoder, CopySource, rules_of

END = 0
RULES = rules_of(END)
SOURCE = (7, 8, 9, END)
TARGETS = ((7, 8, 9, END), (7, 5, 9, END), (4,), (7, 8, 9, END, END))
SCORES = ((BEST,) * 4, (BEST, SECOND, BEST, BEST), (SECOND,), (BEST,) * 5)


@dataclass
class Told:
    """What requests were answered, in order."""

    events: list[tuple[str, Event]] = field(default_factory=list)

    def score(self, name: str, targets: tuple[tuple[int, ...], ...] = TARGETS) -> Score:
        return Score(SOURCE, partial(self._add, name), targets=targets, fed_ids=RULES.fed_ids)

    def translate(self, name: str, length: int) -> Translate:
        source = (*range(2, length + 1), END)
        return Translate(source, partial(self._add, name), decoding=Decoding(max_new_tokens=99), rules=RULES)

    def _add(self, name: str, event: Event) -> None:
        self.events.append((name, event))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    @property
    def error(self) -> Exception:
        [(_, failed)] = self.events
        assert isinstance(failed, Failed)
        return failed.error


@pytest.fixture
def told() -> Told:
    return Told()


def batch(decoder: CopyDecoder | None = None) -> RunningBatch[CopySource]:
    return RunningBatch(decoder or CopyDecoder(), 4, Unobserved(), 0)


def run(engine: RunningBatch[CopySource]) -> None:
    while not engine.idle:
        engine.step()


def test_every_target_has_its_scores(told: Told) -> None:
    registry = CollectorRegistry()
    metrics = ModelMetrics(ModelFamilies(registry), "m")
    engine = RunningBatch(CopyDecoder(), 4, metrics, 0)
    engine.admit([told.score("a")])
    assert not engine.idle and engine.free_rows == 4
    run(engine)
    [(_, scored)] = told.events
    assert isinstance(scored, Scored)
    np.testing.assert_array_equal(np.concatenate(scored.log_probs), np.float32(np.concatenate(SCORES)))
    assert [len(scores) for scores in scored.log_probs] == [len(scores) for scores in SCORES]
    assert scored.timings.decode > 0 and scored.timings.steps == 0
    counted = {name: registry.get_sample_value(f"dragoman_{name}_total", {"model": "m"}) for name in ("source_tokens",)}
    counted["scored_tokens"] = registry.get_sample_value("dragoman_scored_tokens_total", {"model": "m"})
    assert counted == {"source_tokens": 4, "scored_tokens": sum(map(len, TARGETS))}


@dataclass
class SlowScores(CopyDecoder):
    """A part of its scores takes as long as five steps, by the clock that the batch looks at."""

    now_s: float = 100.0

    def __post_init__(self) -> None:
        self.fault = lambda sources: self._takes(0.001)

    def _takes(self, seconds: float) -> None:
        self.now_s += seconds

    def score(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], targets: Sequence[Sequence[int]]
    ) -> Iterator[dict[int, NDArray[np.float32]]]:
        for part in super().score(hidden, prefix, targets):
            self._takes(0.005)
            yield part


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowScores:
    slow = SlowScores()
    monkeypatch.setattr("engine.batch.running_batch.time", SimpleNamespace(perf_counter=lambda: slow.now_s))
    return slow


def test_rows_that_decode_have_as_much_time(told: Told, slow: SlowScores) -> None:
    """A hundred targets do not hold up a sentence that comes after them."""
    engine = batch(slow)
    engine.admit([told.score("many", TARGETS * 25), told.score("few")])
    engine.step()
    engine.admit([told.translate("sentence", 5)])
    run(engine)
    assert told.names == ["sentence", "many", "few"]
    assert all(isinstance(event, Scored | Finished) for _, event in told.events)


@pytest.mark.parametrize("scoring", [False, True])
def test_the_time_between_tokens_is_that_of_rows_alone(scoring: bool, told: Told) -> None:
    """While targets are scored and nothing is decoded, no token is late."""
    registry = CollectorRegistry()
    engine = RunningBatch(CopyDecoder(), 4, ModelMetrics(ModelFamilies(registry), "m"), 0)
    engine.admit([told.score("many", TARGETS * 99)] if scoring else [])
    for sentence in ("first", "second"):
        engine.admit([told.translate(sentence, 5)])
        while sentence not in told.names:
            engine.step()
        engine.step()
    assert engine.idle is not scoring
    assert registry.get_sample_value("dragoman_inter_token_seconds_count", {"model": "m"}) == 6


def test_translations_are_looked_at_when_they_are_found(told: Told) -> None:
    """The fake looks where it copies from; rows are free meanwhile, and timings have the pass in them."""
    engine = batch()
    request = told.translate("aligned", 4)
    request.decoding = replace(request.decoding, with_alignment=True)
    engine.admit([request, told.translate("plain", 4)])
    run(engine)
    aligned, plain = (event for _, event in sorted(told.events))
    assert isinstance(aligned, Finished) and isinstance(plain, Finished)
    assert [tuple(link) for link in aligned.hypotheses[0].links] == [(place, place, 1.0) for place in range(4)]
    assert plain.hypotheses[0].links == () and engine.free_rows == 4
    assert aligned.hypotheses[0].token_ids == plain.hypotheses[0].token_ids


def test_rows_are_given_back_once(told: Told, slow: SlowScores) -> None:
    """Not again where the caller leaves before the translation was looked at."""
    engine = batch(slow)
    request = told.translate("aligned", 3)
    request.decoding = replace(request.decoding, with_alignment=True)
    engine.admit([told.score("before"), request])
    while engine.free_rows < 4:
        engine.step()
    request.cancel()
    run(engine)
    assert told.names == ["before"] and engine.free_rows == 4


@pytest.mark.parametrize("leaves", [False, True])
def test_nobody_waits_for_an_alignment(told: Told, leaves: bool) -> None:
    """And one that nobody waits for is counted as cancelled alone."""
    registry = CollectorRegistry()
    engine = RunningBatch(CopyDecoder(), 4, ModelMetrics(ModelFamilies(registry), "m"), 0)
    request = told.translate("leaving", 3)
    request.decoding = replace(request.decoding, with_alignment=True)
    engine.admit([request])
    for _ in range(3):
        engine.step()
    assert not engine.idle and engine.free_rows == 4
    if leaves:
        request.cancel()
    run(engine)
    assert told.names == ([] if leaves else ["leaving"])
    labels = {"model": "m"}
    finished = registry.get_sample_value("dragoman_finished_total", labels | {"reason": "end_token"})
    assert (finished, registry.get_sample_value("dragoman_cancellations_total", labels)) == (not leaves, leaves)


def test_nobody_waits(told: Told) -> None:
    engine = batch()
    leaving, staying = told.score("leaving"), told.score("staying")
    engine.admit([leaving, staying])
    engine.step()
    leaving.cancel()
    run(engine)
    assert told.names == ["staying"]


def test_too_late(told: Told) -> None:
    engine, request = batch(), told.score("late")
    request.deadline = time.perf_counter() - 1.5
    engine.admit([request])
    run(engine)
    assert isinstance(told.error, Late) and told.error.left < -1


class BrokenScores(CopyDecoder):
    """Says something, and then it fails."""

    broken: Exception | None = None

    def score(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], targets: Sequence[Sequence[int]]
    ) -> Iterator[dict[int, NDArray[np.float32]]]:
        if self.broken is not None:
            raise self.broken
        for part in super().score(hidden, prefix, targets):
            yield {index: np.full_like(scores, np.nan if index == 2 else -1) for index, scores in part.items()}


@pytest.mark.parametrize(
    ("broken", "said"),
    [(None, NotFinite), (NotOffered("scores"), NotOffered), (MemoryError(), OutOfMemory)],
    ids=["not finite", "not offered", "memory"],
)
def test_its_own_failure_is_nobody_elses(broken: Exception | None, said: type[Exception], told: Told) -> None:
    decoder = BrokenScores()
    decoder.broken = broken
    engine, other = batch(decoder), Told()
    engine.admit([other.translate("other", 3), told.score("broken")])
    run(engine)
    assert isinstance(told.error, said)
    assert isinstance(other.events[0][1], Finished)


def test_a_batch_that_fails_answers_those_that_it_scores(told: Told) -> None:
    engine = batch(CopyDecoder(step_error=RuntimeError("of the device")))
    engine.admit([told.score("a")])
    with pytest.raises(RuntimeError, match="of the device"):
        engine.step()
    engine.fail(RuntimeError("of the device"))
    assert str(told.error) == "of the device" and engine.idle


@pytest.mark.parametrize("scores", [True, False])
def test_the_runner(scores: bool, told: Told) -> None:
    decoder = CopyDecoder()
    decoder.scores = scores
    with Runner(decoder, 4, 2, Unobserved()) as runner:
        requests: list[Request] = [told.score(str(number)) for number in range(20)]
        for request in requests:
            runner.submit(request)
        while len(told.events) < 20:
            time.sleep(0.001)
    for _, event in told.events:
        assert isinstance(event, Scored if scores else Failed)
        if isinstance(event, Failed):
            assert str(event.error).startswith("the package's graphs do not give the score of a given target")


def test_attention_of_a_source_is_a_part_of_its_own(told: Told) -> None:
    """The fake's source looks at itself, and its target where it copies from."""
    engine = batch()
    request = told.translate("attended", 4)
    request.decoding = replace(request.decoding, with_attention=True)
    engine.admit([request])
    run(engine)
    [(_, finished)] = told.events
    assert isinstance(finished, Finished) and finished.source_attention is not None
    assert finished.source_attention.dtype == np.float16
    np.testing.assert_array_equal(finished.source_attention[0, 0], np.eye(4))
    attention = finished.hypotheses[0].attention
    assert attention is not None and attention.dtype == np.float16
    np.testing.assert_array_equal(attention[0, 0], np.eye(4))
    assert finished.hypotheses[0].links == (), "nobody asked for them"


def test_who_leaves_nothing_out_pays_nothing(told: Told) -> None:
    """The best hypothesis of the fake copies all of the source. Both that are finished are looked at, one is told."""
    engine, plain, covered = batch(), told.translate("plain", 4), told.translate("covered", 4)
    plain.decoding = replace(plain.decoding, num_beams=2, num_return_sequences=2, early_stopping=True)
    covered.decoding = replace(plain.decoding, num_return_sequences=1, coverage_penalty=1.0)
    for request in (plain, covered):
        engine.admit([request])
        run(engine)
    (_, of_plain), (_, of_covered) = told.events
    assert isinstance(of_plain, Finished) and isinstance(of_covered, Finished)
    [best, _], [only] = of_plain.hypotheses, of_covered.hypotheses
    assert only.token_ids == best.token_ids
    assert only.score == pytest.approx(best.score)
