"""server.engine: what happens to requests, rows and counts in one running batch."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import exp, log
from types import SimpleNamespace
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from server.decoder import Candidates, M
from server.engine import Engine, place
from server.errors import OutOfMemory
from server.metrics import Metrics
from server.request import (
    Decoding,
    Encode,
    Encoded,
    Event,
    Failed,
    Finished,
    FinishReason,
    Hypothesis,
    Request,
    Tokens,
    Translate,
)
from server.search import EndRules, open_search
from tests.fakes import BEST, ROW_BYTES, CopyCache, CopyDecoder, CopyMemory

T = TypeVar("T")

END, START, VOCABULARY = 0, 99, 11
WORKER = 3
MAX_ROWS = 8
RULES = EndRules(END, None, ())


# Where rows go


children = st.integers(1, 40).flatmap(lambda old: st.lists(st.integers(0, old - 1), max_size=40))
"""The row that each child continues."""


@given(children)
def test_place_gives_every_child_a_row(parents: list[int]) -> None:
    assert sorted(place(parents)) == list(range(len(parents)))


@given(children)
def test_place_lets_no_row_be_read_after_it_was_overwritten(parents: list[int]) -> None:
    taken = parent_of_each_row(parents, place(parents))
    assert all(row not in taken for row, parent in enumerate(taken) if row != parent)


@given(children)
def test_place_moves_all_but_one_child_of_each_row_that_stays(parents: list[int]) -> None:
    staying = {parent for parent in parents if parent < len(parents)}
    assert moves(parents, place(parents)) == len(parents) - len(staying)


@given(st.lists(st.integers(0, 6), max_size=6))
def test_place_moves_as_few_rows_as_any_order_does(parents: list[int]) -> None:
    fewest = min(moves(parents, rows) for rows in permutations(range(len(parents))))
    assert moves(parents, place(parents)) == fewest


def parent_of_each_row(parents: Sequence[int], rows: Sequence[int]) -> list[int]:
    taken = dict(zip(rows, parents, strict=True))
    return [taken[row] for row in range(len(rows))]


def moves(parents: Sequence[int], rows: Sequence[int]) -> int:
    return sum(parent != row for parent, row in zip(parents, rows, strict=True))


# A decoder with another answer for every beginning of a target


def candidates(source_ids: tuple[int, ...], target: tuple[int, ...], k: int) -> tuple[list[int], list[float]]:
    """Tokens and log-probabilities that depend on nothing but the source and the target so far."""
    chance = random.Random(f"{source_ids} {target}")
    logits = [chance.gauss(0.0, 2.0) for _ in range(VOCABULARY)]
    total = log(sum(map(exp, logits)))
    ids = sorted(range(VOCABULARY), key=logits.__getitem__, reverse=True)[:k]
    return ids, [float(np.float32(logits[token] - total)) for token in ids]


def decode_alone(request: Translate, rules: EndRules) -> tuple[tuple[Hypothesis, ...], int]:
    """What a request's search finds, and in how many steps, where there is no batch."""
    search, steps = open_search(request.decoding, rules), 0
    targets: list[tuple[int, ...]] = [()]
    while targets:
        ids, log_probs = zip(*(candidates(request.source_ids, t, search.candidates) for t in targets), strict=True)
        advance = search.advance(ids, log_probs)
        targets = [(*targets[p], token) for p, token in zip(advance.parents, advance.tokens, strict=True)]
        steps += 1
    return search.hypotheses(), steps


class RecordingCache(CopyCache):
    """Remembers the tokens each row was fed, and counts."""

    def __init__(self, decoder: CopyDecoder, capacity: int) -> None:
        super().__init__(decoder, capacity)
        self.fed: list[tuple[int, ...]] = []
        self.step_rows: list[int] = []
        self.moved = 0

    def join(self, memory: CopyMemory) -> int:
        self.fed.append(())
        return super().join(memory)

    def begin_step(self, token_ids: Sequence[int], k: int) -> None:
        self.step_rows.append(len(token_ids))
        self.fed = [(*before, token) for before, token in zip(self.fed, token_ids, strict=True)]
        assert all(fed[0] == START for fed in self.fed)
        super().begin_step(token_ids, k)

    def take(self, parents: Sequence[int]) -> int:
        self.fed = [self.fed[parent] for parent in parents]
        self.moved += moves(parents, range(len(parents)))
        return super().take(parents)


class PrefixCache(RecordingCache):
    """Proposes what `candidates` says of each row."""

    def end_step(self) -> Candidates:
        k = super().end_step().token_ids.shape[1]
        rows = [candidates(memory.source_ids, fed[1:], k) for (memory, _), fed in zip(self.rows, self.fed, strict=True)]
        ids, log_probs = zip(*rows, strict=True)
        return Candidates(np.array(ids), np.array(log_probs, np.float32))


@dataclass
class RecordingDecoder(CopyDecoder):
    kind: type[RecordingCache] = RecordingCache
    caches: list[RecordingCache] = field(default_factory=list)

    def open_cache(self, rows: int) -> RecordingCache:
        self.caches.append(self.kind(self, rows))
        return self.caches[-1]


# Requests that come and go


@dataclass
class Visit:
    """A request, the step it may join at, the step it is cancelled before, and what it was told."""

    request: Translate
    arrival: int = 0
    cancellation: int | None = None
    events: list[Event] = field(default_factory=list)
    cancelled_in_time: bool = False

    @property
    def answer(self) -> Finished:
        assert isinstance(self.events[-1], Finished)
        return self.events[-1]

    @property
    def answered(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], Finished)

    @property
    def streamed(self) -> list[tuple[int, ...]]:
        return [event.token_ids for event in self.events if isinstance(event, Tokens)]


def visit(
    source_ids: Sequence[int],
    num_beams: int = 1,
    max_new_tokens: int = 100,
    length_penalty: float = 1.0,
    stream: bool = False,
    arrival: int = 0,
    cancellation: int | None = None,
) -> Visit:
    events: list[Event] = []
    decoding = Decoding(num_beams, num_beams, max_new_tokens, length_penalty, False)
    request = Translate(tuple(source_ids), events.append, decoding=decoding, stream=stream)
    return Visit(request, arrival, cancellation, events)


sources = st.lists(st.integers(1, VOCABULARY - 1), max_size=9).map(lambda ids: [*ids, END])
visits = st.builds(
    visit,
    source_ids=sources,
    num_beams=st.integers(1, 5),
    max_new_tokens=st.integers(1, 12),
    length_penalty=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    stream=st.booleans(),
    arrival=st.integers(0, 15),
    cancellation=st.none() | st.integers(0, 20),
)
schedules = st.lists(visits, min_size=1, max_size=9)


class Batch:
    """An engine, and all that can be seen of it."""

    def __init__(self, rules: EndRules = RULES, kind: type[RecordingCache] = RecordingCache) -> None:
        self.registry = CollectorRegistry()
        self.decoder = RecordingDecoder(kind=kind)
        self.engine = Engine(self.decoder, rules, START, MAX_ROWS, Metrics(self.registry, "copy"), WORKER)
        [self.cache] = self.decoder.caches

    def serve(self, schedule: Sequence[Visit]) -> None:
        """Lets every visit join in the order of arrival, as soon as it fits, until all have left."""
        waiting, inside, step = deque(sorted(schedule, key=lambda visit: visit.arrival)), list[Visit](), 0
        while waiting or not self.engine.idle:
            while waiting and waiting[0].arrival <= step and waiting[0].request.rows <= self.engine.free_rows:
                inside.append(waiting.popleft())
                self.engine.admit([inside[-1].request])
            for visit in inside:
                if visit.cancellation is not None and visit.cancellation <= step:
                    visit.request.cancel()
                    visit.cancelled_in_time |= not visit.answered
            self.step()
            inside = [visit for visit in inside if not visit.answered and not visit.cancelled_in_time]
            self.check_rows(inside)
            step += 1

    def step(self) -> None:
        """One step, and what it says."""
        self.engine.step()
        self.engine.deliver()

    def check_rows(self, inside: Sequence[Visit]) -> None:
        reserved = sum(visit.request.rows for visit in inside)
        assert self.engine.free_rows == MAX_ROWS - reserved
        assert self.engine.idle == (not inside)
        assert len(inside) <= self.cache.live <= reserved

    @property
    def rows_live(self) -> float:
        return self.sample("dragoman_rows_live", worker=str(WORKER))

    def sample(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(name, {"model": "copy", **labels})
        assert value is not None, f"no sample {name} {labels}"
        return value


def split(schedule: Sequence[Visit]) -> tuple[list[Visit], list[Visit]]:
    """Those that were answered, and those that were cancelled. Nothing is both, or told anything afterwards."""
    answered = [visit for visit in schedule if not visit.cancelled_in_time]
    assert all(isinstance(visit.events[-1], Finished) for visit in answered)
    cancelled = [visit for visit in schedule if visit.cancelled_in_time]
    for visit in schedule:
        told = visit.events if visit.cancelled_in_time else visit.events[:-1]
        assert all(isinstance(event, Tokens) and visit.request.stream for event in told)
    return answered, cancelled


@given(schedules)
def test_every_request_copies_its_source(schedule: list[Visit]) -> None:
    batch = Batch()
    batch.serve(schedule)
    for visit in split(schedule)[0]:
        source, most = visit.request.source_ids, visit.request.decoding.max_new_tokens
        best = visit.answer.hypotheses[0]
        assert best.token_ids == source[:most]
        assert best.finish_reason is (FinishReason.END_TOKEN if len(source) <= most else FinishReason.LENGTH)
        length = len(best.token_ids)
        assert best.score == pytest.approx(BEST * length / length**visit.request.decoding.length_penalty)
        if visit.request.rows == 1:
            assert visit.answer.timings.steps == length


all_rules = st.builds(EndRules, st.just(END), st.sampled_from([None, END]), st.sampled_from([(), (5,), (4, 5)]))


@given(schedules, all_rules)
@settings(max_examples=200)
def test_every_request_is_answered_as_if_it_were_alone(schedule: list[Visit], rules: EndRules) -> None:
    batch = Batch(rules, PrefixCache)
    batch.serve(schedule)
    for visit in split(schedule)[0]:
        assert (visit.answer.hypotheses, visit.answer.timings.steps) == decode_alone(visit.request, rules)


@given(schedules)
def test_streams_bring_the_beginning_of_the_best_hypothesis(schedule: list[Visit]) -> None:
    Batch(kind=PrefixCache).serve(schedule)
    for visit in split(schedule)[0]:
        pieces, best = visit.streamed, visit.answer.hypotheses[0].token_ids
        assert all(pieces)
        streamed = sum(pieces, ())
        assert streamed == best[: len(streamed)]
        if visit.request.stream and visit.request.rows == 1:  # every token as it comes, the last with the answer
            assert pieces == [(token,) for token in best[:-1]]


def test_beams_stream_what_they_agree_on() -> None:
    streams = [visit((*range(1, VOCABULARY), END), num_beams=2, stream=True) for _ in range(3)]
    Batch(kind=PrefixCache).serve(streams)
    assert all(stream.streamed for stream in streams)


@given(schedules)
def test_counts_add_up(schedule: list[Visit]) -> None:
    batch = Batch(kind=PrefixCache)
    batch.serve(schedule)
    answered, cancelled = split(schedule)
    best = [visit.answer.hypotheses[0] for visit in answered]
    expected = {
        "dragoman_steps_total": len(batch.cache.step_rows),
        "dragoman_step_rows_sum": sum(batch.cache.step_rows),
        "dragoman_rows_computed_total": sum(batch.cache.step_rows),
        "dragoman_cache_rows_moved_total": batch.cache.moved,
        "dragoman_cancellations_total": len(cancelled),
        "dragoman_source_tokens_total": sum(len(visit.request.source_ids) for visit in answered),
        "dragoman_target_tokens_total": sum(len(hypothesis.token_ids) for hypothesis in best),
        "dragoman_cache_moved_bytes_total": ROW_BYTES * batch.cache.moved,
    }
    assert {name: batch.sample(name) for name in expected} == expected
    for reason in FinishReason:
        finished = sum(hypothesis.finish_reason is reason for hypothesis in best)
        assert batch.sample("dragoman_finished_total", reason=reason.value) == finished
    assert batch.sample("dragoman_cache_tokens", worker=str(WORKER)) == 0
    encoded = batch.sample("dragoman_encoder_tokens_total", kind="source")
    asked = sum(len(visit.request.source_ids) for visit in schedule)
    assert asked >= encoded >= expected["dragoman_source_tokens_total"]
    assert batch.engine.free_rows == MAX_ROWS
    assert batch.cache.live == batch.rows_live == 0


# One thing at a time


def test_cancelled_requests_leave_before_the_next_step() -> None:
    batch = Batch()
    stays, leaves = visit([4, 5, 6, END]), visit([7, 8, 9, END], num_beams=3)
    for guest in (stays, leaves):
        batch.engine.admit([guest.request])
    batch.step()
    batch.step()
    assert batch.engine.free_rows == MAX_ROWS - 4
    leaves.request.cancel()
    batch.step()
    assert batch.cache.step_rows == [2, 4, 1]
    assert batch.cache.live == batch.rows_live == 1
    assert batch.engine.free_rows == MAX_ROWS - 1
    assert batch.sample("dragoman_cancellations_total") == 1
    batch.step()
    assert stays.answer.hypotheses[0].token_ids == (4, 5, 6, END)
    assert leaves.events == []


def test_rows_of_the_last_request_are_free_once_it_is_cancelled() -> None:
    batch = Batch()
    only = visit([4, 5, 6, END])
    batch.engine.admit([only.request])
    batch.step()
    assert batch.rows_live == 1
    only.request.cancel()
    batch.step()
    assert batch.cache.step_rows == [1]
    assert batch.engine.idle
    assert batch.engine.free_rows == MAX_ROWS
    assert batch.cache.live == batch.rows_live == 0


def test_an_idle_engine_makes_no_step() -> None:
    batch = Batch()
    batch.step()
    assert batch.cache.step_rows == []
    assert batch.sample("dragoman_steps_total") == batch.rows_live == 0


def test_encode_needs_no_row() -> None:
    batch = Batch()
    batch.engine.admit([visit([4, END], num_beams=MAX_ROWS).request])
    assert batch.engine.free_rows == 0
    answer = encode(batch.engine, (3, 5, END))
    assert answer.vector.tolist() == CopyMemory((3, 5, END)).mean().tolist()
    assert (answer.timings.decode, answer.timings.steps) == (0.0, 0)
    assert batch.cache.live == 1
    assert batch.sample("dragoman_source_tokens_total") == 3


def encode(engine: Engine[M], source_ids: tuple[int, ...]) -> Encoded:
    events: list[Event] = []
    engine.admit([Encode(source_ids, events.append)])
    [answer] = events
    assert isinstance(answer, Encoded)
    return answer


def test_fail_answers_all_that_run() -> None:
    batch = Batch()
    guests = [visit([4, 5, END]), visit([6, 7, END], num_beams=4)]
    for guest in guests:
        batch.engine.admit([guest.request])
    batch.step()
    error = RuntimeError("broken")
    batch.engine.fail(error)
    assert [guest.events for guest in guests] == [[Failed(error)], [Failed(error)]]
    assert batch.engine.idle
    assert batch.rows_live == 0


def test_events_are_delivered_while_the_next_step_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch()
    ends, stays = visit([4, END]), visit([5, 6, 7, END])
    batch.engine.admit([ends.request, stays.request])
    batch.engine.step()
    batch.engine.step()
    assert not ends.answered
    answered: list[bool] = []
    monkeypatch.setattr(batch.cache, "end_step", after(lambda: answered.append(ends.answered), batch.cache.end_step))
    batch.engine.step()
    assert answered == [True]
    batch.engine.step()
    assert stays.answered  # no step comes that it could wait for


def test_requests_without_memory_are_refused_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch()
    encode_all = batch.decoder.encode

    def encode_short(sources: Sequence[Sequence[int]]) -> list[CopyMemory]:
        longest = max(map(len, sources))
        if longest > 3:
            raise OutOfMemory(longest)
        return encode_all(sources)

    monkeypatch.setattr(batch.decoder, "encode", encode_short)
    guests = [visit([4, END]), visit([5, 6, 7, 8, END], num_beams=2), visit([9, END]), visit([5, 6, END])]
    batch.engine.admit([guest.request for guest in guests])
    long = guests.pop(1)
    [refusal] = long.events
    assert isinstance(refusal, Failed)
    assert isinstance(refusal.error, OutOfMemory)
    assert refusal.error.metadata == {"source_tokens": "5"}
    assert batch.engine.free_rows == MAX_ROWS - len(guests)
    for _ in range(3):
        batch.step()
    for guest in guests:
        assert guest.answer.hypotheses[0].token_ids == guest.request.source_ids
    assert batch.engine.free_rows == MAX_ROWS


def test_timings_are_of_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder run takes 2 s and a step 3 s of a clock that stands still in between."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("server.engine.time", SimpleNamespace(perf_counter=lambda: clock.now))
    batch = Batch()
    monkeypatch.setattr(batch.decoder, "encode", taking(2.0, clock, batch.decoder.encode))
    monkeypatch.setattr(batch.cache, "end_step", taking(3.0, clock, batch.cache.end_step))
    first, second = visit([4, 5, 6, END]), visit([7, END])
    admit(batch.engine, first.request, arrived=99.0)  # runs from 102
    batch.step()
    admit(batch.engine, second.request, arrived=100.5)  # runs from 107
    for _ in range(3):
        batch.step()
    timings = first.answer.timings
    assert (timings.queue, timings.encode, timings.decode, timings.steps) == (1.0, 2.0, 14.0, 4)
    assert timings.total == 17.0
    timings = second.answer.timings
    assert (timings.queue, timings.encode, timings.decode, timings.steps) == (4.5, 2.0, 6.0, 2)
    encode(batch.engine, (3, END))
    seconds = {part: batch.sample("dragoman_step_seconds_total", part=part) for part in ("model", "engine")}
    assert seconds == {"model": 12.0, "engine": 0.0}
    assert batch.sample("dragoman_inter_token_seconds_sum") == 8.0
    assert batch.sample("dragoman_time_to_first_token_seconds_sum") == (105.0 - 99.0) + (110.0 - 100.5)
    assert batch.sample("dragoman_phase_duration_seconds_sum", phase="encode") == 3 * 2.0
    assert batch.sample("dragoman_phase_duration_seconds_sum", phase="decode") == 14.0 + 6.0


def taking(seconds: float, clock: SimpleNamespace, call: Callable[..., T]) -> Callable[..., T]:
    def wait() -> None:
        clock.now += seconds

    return after(wait, call)


def after(first: Callable[[], None], call: Callable[..., T]) -> Callable[..., T]:
    def both(*arguments: object) -> T:
        first()
        return call(*arguments)

    return both


def admit(engine: Engine[M], request: Request, arrived: float) -> None:
    request.arrived = arrived
    engine.admit([request])
