"""engine.batch.running_batch: what happens to requests, rows and counts in one running batch."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch.placing import place
from engine.request import FinishReason
from tests.engine.batch.engine_batch import (
    END,
    MAX_ROWS,
    VOCABULARY,
    WORKER,
    Batch,
    PrefixCache,
    SlotCache,
    Visit,
    decode_alone,
    make_visit,
    mixed_schedules,
    moves,
    parent_of_each_row,
    schedules,
    split,
)
from tests.fakes import BEST, ROW_BYTES

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


# Requests that come and go


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


@pytest.mark.parametrize("kind", [PrefixCache, SlotCache])
@given(schedule=mixed_schedules)
@settings(max_examples=200)
def test_every_request_is_answered_as_if_it_were_alone(kind: type[PrefixCache], schedule: list[Visit]) -> None:
    batch = Batch(kind)
    batch.serve(schedule)
    for visit in split(schedule)[0]:
        assert (visit.answer.hypotheses, visit.answer.timings.steps) == decode_alone(visit.request)


def test_beams_whose_rows_have_slots_lie_beside_each_other() -> None:
    """Those of a search read the same source."""
    batch = Batch(kind=SlotCache)
    sources = [(*range(1, last), END) for last in (9, 8)]
    batch.engine.admit([make_visit(source, num_beams=4).request for source in sources])
    for _ in range(4):
        batch.step()
    assert [source.source_ids for source, _ in batch.cache.rows] == [source for source in sources for _ in range(4)]


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
    streams = [make_visit((*range(1, VOCABULARY), END), num_beams=2, stream=True) for _ in range(3)]
    Batch(kind=PrefixCache).serve(streams)
    assert all(stream.streamed for stream in streams)


@pytest.mark.parametrize("kind", [PrefixCache, SlotCache])
@given(schedule=schedules)
def test_counts_add_up(kind: type[PrefixCache], schedule: list[Visit]) -> None:
    batch = Batch(kind)
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
