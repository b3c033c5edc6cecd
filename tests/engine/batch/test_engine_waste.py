"""engine.batch.running_batch: what it tells of its work, and of what of it was for nothing."""

import time

from hypothesis import given

from models.decoding import Decoding
from tests.engine.batch.engine_batch import END, WORKER, Batch, PrefixCache, Visit, make_visit, schedules, split
from tests.fakes import rules_of

WASTE = ("hypotheses", "cancelled")


@given(schedules)
def test_every_row_computed_is_in_an_answer_or_waste(schedule: list[Visit]) -> None:
    batch = Batch(kind=PrefixCache)
    batch.serve(schedule)
    useful = batch.sample("dragoman_target_tokens_total")
    beams, dropped = (batch.sample("dragoman_rows_wasted_total", reason=reason) for reason in WASTE)
    assert useful + beams + dropped == batch.sample("dragoman_rows_computed_total")
    answered, cancelled = split(schedule)
    if all(visit.request.rows == 1 for visit in answered):
        assert beams == 0
    if not cancelled:
        assert dropped == 0


def three_alternatives() -> Visit:
    visit = make_visit((4, 5, END))
    visit.request.decoding = Decoding(return_alternatives=True, num_return_sequences=3)
    visit.request.rows = visit.request.decoding.rows
    return visit


def test_rows_of_other_alternatives_are_in_no_best_hypothesis() -> None:
    batch, visit = Batch(PrefixCache), three_alternatives()
    batch.serve([visit])
    best, *others = (len(one.token_ids) for one in visit.answer.hypotheses)
    assert batch.sample("dragoman_target_tokens_total") == best
    assert batch.sample("dragoman_rows_wasted_total", reason="hypotheses") == sum(others) > 0
    assert batch.sample("dragoman_rows_computed_total") == best + sum(others)


def test_alternatives_that_had_ended_when_the_caller_left_were_for_nothing() -> None:
    batch, visit = Batch(PrefixCache), three_alternatives()
    batch.engine.admit([visit.request])
    while batch.cache.live == 3:
        batch.step()
    visit.request.cancel()
    batch.step()
    assert batch.engine.idle
    dropped = batch.sample("dragoman_rows_wasted_total", reason="cancelled")
    assert dropped == batch.sample("dragoman_rows_computed_total") > 0


def test_a_forced_end_token_takes_no_row() -> None:
    batch = Batch()
    batch.serve([make_visit((1, 2, 3, 4, END), max_new_tokens=3, rules=rules_of(END, END))])
    assert batch.sample("dragoman_target_tokens_total") == 3
    assert batch.sample("dragoman_rows_computed_total") == 2
    assert batch.sample("dragoman_rows_wasted_total", reason="hypotheses") == 0


def test_the_rows_of_a_step_are_those_of_all_who_share_it() -> None:
    short, long = make_visit((1, 2, END)), make_visit((1, 2, 3, 4, END))
    Batch().serve([short, long])
    assert (short.answer.timings.mean_batch_rows, long.answer.timings.mean_batch_rows) == (2, (3 * 2 + 2) / 5)


def test_the_cache_holds_the_sources_and_what_follows_them() -> None:
    batch = Batch()
    one, two = make_visit((1, 2, 3, 4, END)), make_visit((1, 2, 3, 4, 5, 6, END))
    batch.engine.admit([one.request, two.request])
    batch.step()
    assert batch.sample("dragoman_cache_tokens", worker=str(WORKER)) == (5 + 1) + (7 + 1)
    two.request.cancel()
    batch.step()
    assert batch.sample("dragoman_cache_tokens", worker=str(WORKER)) == 5 + 2


def test_a_step_leaves_its_time() -> None:
    batch = Batch()
    ready = batch.sample("dragoman_last_step_timestamp_seconds", worker=str(WORKER))
    assert ready <= time.time()
    batch.step()  # nothing to do
    assert batch.sample("dragoman_last_step_timestamp_seconds", worker=str(WORKER)) == ready
    batch.serve([make_visit((1, END))])
    assert ready < batch.sample("dragoman_last_step_timestamp_seconds", worker=str(WORKER)) <= time.time()
