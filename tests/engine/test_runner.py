"""engine.runner: who comes when, and who leaves."""

import random
import threading

from engine.queueing.queue import JOINING_TOKENS
from engine.request import Encoded
from tests.engine.calling import END, ENDLESS, SOURCE, Call, calls_of, serving, sources_of
from tests.fakes import WAIT_S, CopySource
from tests.server_process import eventually

# Who comes when


def test_first_come_first_served() -> None:
    with serving(max_rows=1) as service:
        calls = calls_of(5)
        service.submit(*calls)
        service.gate.wait_until_held()
        assert service.waiting == 4
        service.gate.open()
        assert [call.target for call in calls] == sources_of(calls)
        assert service.decoder.encoded == sources_of(calls)
        assert service.waiting == 0


def test_requests_join_what_runs() -> None:
    with serving() as service:
        running, joining = Call(ENDLESS), Call()
        service.submit(running)
        service.gate.wait_until_held()
        service.submit(joining)
        service.gate.let(1)
        service.gate.wait_until_held()
        assert service.decoder.encoded == [ENDLESS, SOURCE]
        service.gate.let(len(SOURCE))
        assert joining.target == SOURCE
        assert running.told_nothing


def test_wide_beam_is_not_overtaken_by_narrow_ones() -> None:
    with serving(max_rows=4) as service:
        running, wide, narrow = Call((8, 8, 8, END)), Call((9, END), num_beams=4), calls_of(3)
        service.submit(running)
        service.gate.wait_until_held()
        service.submit(wide, *narrow)  # there is room for all three narrow ones, and not for the wide one
        service.gate.let(1)
        service.gate.wait_until_held()
        assert service.decoder.encoded == [(8, 8, 8, END)]
        service.gate.open()
        calls = [running, wide, *narrow]
        assert [call.target for call in calls] == sources_of(calls)
        assert service.decoder.encoded == sources_of(calls)


def test_every_idle_worker_gets_work() -> None:
    with serving(workers=2) as service:
        first, second = Call(), Call((8, END))
        service.submit(first)
        service.gate.wait_until_held(1)
        service.submit(second)  # there is room beside the first
        service.gate.wait_until_held(2)
        service.gate.open()
        assert (first.target, second.target) == (SOURCE, (8, END))


def test_a_burst_is_shared_among_the_workers() -> None:
    with serving(workers=2, max_rows=16) as service:
        first, second = Call(ENDLESS), Call(ENDLESS)
        for held, call in enumerate((first, second)):
            service.submit(call)
            service.gate.wait_until_held(held + 1)
        service.submit(*(Call(ENDLESS) for _ in range(14)))
        service.step_until(lambda: service.waiting == 0, workers=2)
        service.step_until(lambda: sum(service.live_rows) == 16, workers=2)
        assert service.live_rows == [8, 8]


def test_what_fits_nowhere_else_goes_to_the_worker_with_the_most_room() -> None:
    with serving(workers=2, max_rows=8) as service:
        narrow, wide = Call(ENDLESS, num_beams=2), Call(ENDLESS, num_beams=4)
        for held, call in enumerate((narrow, wide)):
            service.submit(call)
            service.gate.wait_until_held(held + 1)
        last = Call((9, END), num_beams=6)
        last.request.caller = "another"
        service.submit(last)
        service.step_until(lambda: service.waiting == 0, workers=2)


def test_vectors_need_no_row() -> None:
    with serving(max_rows=1) as service:
        running, vector = Call(ENDLESS), Call.for_vector()
        service.submit(running)
        service.gate.wait_until_held()
        service.submit(vector)
        service.gate.let(1)
        answer = vector.answer()
        assert isinstance(answer, Encoded)
        assert answer.vectors.data.tolist() == CopySource(SOURCE).hidden().mean(axis=0).tolist()


def test_cancelled_requests_in_the_queue_are_dropped() -> None:
    with serving(max_rows=1) as service:
        running, (second, third, fourth) = Call(), calls_of(3)
        service.submit(running, second, third, fourth)
        service.gate.wait_until_held()
        for call in (second, fourth):
            call.request.cancel()
        service.gate.open()
        assert (running.target, third.target) == (SOURCE, third.request.source_ids)
        service.submit(last := Call())
        assert last.target == SOURCE
        assert service.decoder.encoded == sources_of([running, third, last])
        assert service.sample("dragoman_cancellations_total") == 2
        assert service.waiting == 0
    assert second.told_nothing
    assert fourth.told_nothing


def test_a_cancelled_request_waits_no_more_wherever_it_stands() -> None:
    """Admission counts those that wait: the dead must not keep the living out."""
    with serving(max_rows=1) as service:
        service.submit(running := Call(ENDLESS))
        service.gate.wait_until_held()
        dead, alive = calls_of(7), Call()
        service.submit(alive, *dead)
        assert service.waiting == 8
        for call in dead:
            call.request.cancel()
        assert service.waiting == 1
        assert service.sample("dragoman_cancellations_total") == 7
        running.request.cancel()
        service.gate.open()
        assert alive.target == SOURCE
    assert service.decoder.encoded == [ENDLESS, SOURCE]


def test_what_is_cancelled_before_it_comes_is_never_queued() -> None:
    with serving() as service:
        early = Call()
        early.request.cancel()
        service.submit(early)
        assert service.waiting == 0
        assert service.sample("dragoman_cancellations_total") == 1
    assert early.told_nothing


def test_what_fits_no_row_is_refused_with_both_numbers() -> None:
    with serving(max_rows=4) as service:
        service.submit(wide := Call(num_beams=5))
        assert str(wide.error) == "the request needs 5 rows; the engine has 4"


def test_long_sources_are_encoded_one_at_a_time_beside_rows_that_run() -> None:
    """These wait meanwhile."""
    with serving(max_rows=32) as service:
        service.submit(first := Call())
        service.gate.wait_until_held()
        long = [Call((*[token] * (JOINING_TOKENS // 2 - 1), END)) for token in range(1, 6)]
        service.submit(*long)
        service.gate.open()
        assert first.target == SOURCE
        assert [call.target for call in long] == [call.request.source_ids for call in long]
    assert service.decoder.together == [4, *[JOINING_TOKENS // 2] * 5]


def test_one_source_may_be_longer_than_what_joins_together() -> None:
    with serving() as service:
        service.gate.open()
        service.submit(long := Call((*[5] * (2 * JOINING_TOKENS), END)))
        assert len(long.target) == 2 * JOINING_TOKENS + 1


def test_cancelled_requests_make_room_at_the_next_step() -> None:
    with serving(max_rows=2) as service:
        running, waiting = Call(ENDLESS, num_beams=2), Call()
        service.submit(running)
        service.gate.wait_until_held()
        service.submit(waiting)
        running.request.cancel()
        service.gate.open()
        assert waiting.target == SOURCE
        assert service.sample("dragoman_cancellations_total") == 1
        assert running.told_nothing


def test_many_callers_at_once() -> None:
    with serving(workers=2, max_rows=5) as service:
        service.gate.open()
        chance = random.Random(5)
        calls, leaving = ([random_call(chance, stream) for _ in range(60)] for stream in (True, False))
        everyone = [*calls, *leaving]
        chance.shuffle(everyone)
        callers = [threading.Thread(target=service.submit, args=everyone[start::3]) for start in range(3)]
        for caller in callers:
            caller.start()
        for call in leaving:
            call.request.cancel()
        for caller in callers:
            caller.join(WAIT_S)

        def done() -> float:
            finished = [service.sample("dragoman_finished_total", reason=reason) for reason in ("end_token", "length")]
            return sum(finished) + service.sample("dragoman_cancellations_total")

        eventually(lambda: done() >= len(everyone))  # what is taken and has no row yet is counted nowhere else
        eventually(lambda: service.live_rows == [0, 0])
        for call in everyone:
            if call in calls or not call.told_nothing:
                assert call.target == call.request.source_ids
            assert call.told_nothing
        assert done() == len(everyone)
        assert service.waiting == 0
        assert service.sample("dragoman_rows_capacity") == 10


def random_call(chance: random.Random, stream: bool) -> Call:
    source_ids = chance.choices(range(1, 99), k=chance.randint(0, 9))
    return Call((*source_ids, END), chance.randint(1, 5), stream)
