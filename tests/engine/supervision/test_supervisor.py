"""engine.supervision: workers that crash, hang or run out of memory live again, and nobody's request is lost."""

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from engine.errors import Closing, Hung, OutOfMemory, Quarantined, Stopped
from engine.queueing.cost import Measured
from engine.request import Finished
from engine.supervision.policy import Supervision
from tests.engine.calling import END, SOURCE, Call, calls_of, serving, sources_of
from tests.engine.supervision.faults import (
    POISON,
    SUPERVISED,
    UNWATCHED,
    Sources,
    look_after,
    once,
    poisoned,
    restarts,
    together,
)
from tests.fakes import WAIT_S


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.supervision.supervisor.LOOK_S", 0.02)


def test_after_a_crash_all_are_answered_as_if_nothing_had_happened() -> None:
    with serving(supervision=SUPERVISED) as service:
        calls = [*calls_of(3), Call.for_vector()]
        together(service, calls, once(RuntimeError("broken")))
        for call in calls[:3]:
            assert call.target == call.request.source_ids
        calls[3].answer()
        later = Call()
        service.submit(later)
        assert later.target == later.request.source_ids
        assert restarts(service) == {"crash": 1}
        assert service.sample("dragoman_retried_total") == 3
        assert not service.runner.failure.done()
    assert all(call.told_nothing for call in (*calls, later))


def test_beams_are_tried_again_too() -> None:
    with serving(supervision=SUPERVISED) as service:
        calls = [Call(num_beams=2), Call(num_beams=1)]
        together(service, calls, once(RuntimeError("broken")))
        assert [call.target for call in calls] == sources_of(calls)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own")
def test_workers_are_nicer_than_who_answers_callers_in_every_life() -> None:
    found, broken = list[int](), once(RuntimeError("broken"))

    def fault(sources: Sources) -> None:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        broken(sources)

    with serving(supervision=replace(SUPERVISED, nice=3)) as service:
        together(service, [call := Call()], fault)
        assert call.target == call.request.source_ids
    assert len(found) > 1
    assert set(found) == {min(os.getpriority(os.PRIO_PROCESS, os.getpid()) + 3, 19)}


def test_one_that_hangs_and_is_not_to_begin_anew_is_noticed() -> None:
    hangs = threading.Event()

    def fault(sources: Sources) -> None:
        assert hangs.wait(WAIT_S)

    with serving(supervision=Supervision(hang_s=0.3, hang_times=0.0, first_s=0.3)) as service:
        service.decoder.fault = fault
        service.gate.open()
        service.submit(call := Call())
        assert isinstance(call.error, Hung)
        assert isinstance(service.runner.failure.result(WAIT_S), Hung)
        hangs.set()


def test_a_turn_is_expected_to_take_what_it_has_to_do() -> None:
    with serving(supervision=SUPERVISED) as service:
        worker = service.runner._supervisor.workers[0]
        service.runner._cost.measured(Measured(fixed=2.0, each=0.5, token=3.0))
        service.submit(Call(), Call())
        service.gate.wait_until_held()
        assert worker.expected_s == pytest.approx(2 * len(SOURCE) * 3.0 + 2.0 + 2 * 0.5)


def test_a_stream_that_was_told_tokens_fails_and_is_tried_for_what_it_may_be() -> None:
    with serving(supervision=SUPERVISED) as service:
        stream, other = Call(POISON, stream=True), Call((8, 8, 8, 8, 8, END))
        together(service, [stream, other], poisoned)
        assert str(stream.error) == "broken"
        assert other.target == other.request.source_ids
        wait_until(lambda: restarts(service) == {"crash": 2})
        again = Call(POISON, stream=True)
        service.submit(again)
        assert isinstance(again.error, Quarantined)
    assert stream.told_nothing


def test_a_worker_that_hangs_is_left_behind_and_what_it_says_later_is_not_heard() -> None:
    hangs, hung = threading.Event(), threading.Event()

    def fault(sources: Sources) -> None:
        if threading.current_thread() is first:
            hung.set()
            assert hangs.wait(WAIT_S)

    with serving(supervision=UNWATCHED) as service:
        first, batch = service.runner._supervisor.workers[0].thread, service.runner._supervisor.workers[0].batch
        calls = calls_of(3)
        together(service, calls, fault)
        assert hung.wait(WAIT_S)
        look_after(service.runner)
        assert [call.target for call in calls] == sources_of(calls)
        assert restarts(service) == {"hang": 1}
        ended: list[object] = []
        service.runner._queue.ended = lambda *told: ended.append(told)  # type: ignore[method-assign]
        batch.free_rows = 0
        hangs.set()
        first.join(WAIT_S)
        assert not first.is_alive()
        assert batch.free_rows > 0  # it has come to an end, of which nobody was told
        assert not ended
        assert all(call.told_nothing for call in calls)
        assert service.sample("dragoman_finished_total", reason="end_token") == 3


def test_what_hangs_twice_is_refused() -> None:
    hangs, hung = threading.Event(), threading.Semaphore(0)

    def fault(sources: Sources) -> None:
        if POISON in sources:
            hung.release()
            assert hangs.wait(WAIT_S)

    with serving(supervision=UNWATCHED) as service:
        poison, other = Call(POISON), Call()
        together(service, [poison, other], fault)
        for _ in range(2):
            assert hung.acquire(timeout=WAIT_S)
            look_after(service.runner)
        assert isinstance(poison.error, Quarantined)
        assert other.target == other.request.source_ids
        assert restarts(service) == {"hang": 2}
        hangs.set()


def test_a_stream_that_hangs_is_told() -> None:
    hangs, hung = threading.Event(), threading.Event()
    steps = [0]

    def fault(sources: Sources) -> None:
        steps[0] += 1
        if steps[0] == 3:
            hung.set()
            assert hangs.wait(WAIT_S)

    with serving(supervision=UNWATCHED) as service:
        stream = Call(stream=True)
        together(service, [stream], fault)
        assert hung.wait(WAIT_S)
        look_after(service.runner)
        assert isinstance(stream.error, Hung)
        hangs.set()
    assert stream.told_nothing


def test_without_memory_the_batch_is_halved_until_it_fits() -> None:
    most = [0]

    def fault(sources: Sources) -> None:
        most[0] = max(most[0], len(sources))
        if len(sources) > 2:
            raise MemoryError

    with serving(max_rows=8, supervision=Supervision(restarts=1)) as service:
        calls = calls_of(8)
        together(service, calls, fault)
        assert [call.target for call in calls] == sources_of(calls)
        assert most[0] == 8
        assert restarts(service) == {"memory": 2}  # of which none counts: each has made the batch smaller
        assert not service.runner.failure.done()


def test_a_request_that_has_no_memory_alone_is_told_so_and_may_come_again() -> None:
    def fault(sources: Sources) -> None:
        if POISON in sources:
            raise MemoryError

    with serving(supervision=SUPERVISED) as service:
        large, other = Call(POISON), Call()
        together(service, [large, other], fault)
        assert isinstance(large.error, OutOfMemory)
        assert other.target == other.request.source_ids
        service.decoder.fault = None
        again = Call(POISON)
        service.submit(again)
        assert again.target == POISON


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("Failed to allocate memory for requested buffer")])
def test_encoding_is_halved_without_a_restart(error: Exception) -> None:
    with serving(max_rows=4, supervision=SUPERVISED) as service:
        encode = service.decoder.encode

        def short(sources: Sources, named: Sources) -> object:
            if len(sources) > 1:
                raise error
            return encode(sources, named)

        service.decoder.encode = short  # type: ignore[assignment, method-assign]
        calls = calls_of(4)
        together(service, calls)
        assert [call.target for call in calls] == sources_of(calls)
        assert restarts(service) == {}


def test_after_too_many_restarts_it_gives_up_and_answers_everybody() -> None:
    def fault(sources: Sources) -> None:
        raise RuntimeError("broken for good")

    with serving(supervision=Supervision(restarts=3)) as service:
        calls = calls_of(4)
        waiting = calls_of(2, first=30)
        service.decoder.fault = fault
        service.submit(*calls)
        service.gate.wait_until_held()
        service.submit(*waiting)
        service.gate.open()
        assert str(service.runner.failure.result(WAIT_S)) == "broken for good"
        errors = [call.error for call in calls]
        assert [type(error) for error in errors].count(Quarantined) == 2
        assert str(errors[-1]) == "broken for good"
        assert all(isinstance(call.error, Stopped) for call in waiting)
        assert restarts(service) == {"crash": 3}
        late = Call()
        service.submit(late)
        assert isinstance(late.error, Stopped)


def test_restarts_are_forgotten_after_a_while() -> None:
    with serving(supervision=Supervision(restarts=1, within_s=0.001)) as service:
        service.gate.open()
        for _ in range(4):
            service.decoder.fault = once(RuntimeError("broken"))
            call = Call()
            service.submit(call)
            assert call.target == call.request.source_ids
            time.sleep(0.002)
        assert restarts(service) == {"crash": 4}


def test_other_workers_serve_while_one_tries_its_suspects() -> None:
    with serving(workers=2, max_rows=1, supervision=SUPERVISED) as service:
        crashing, staying = Call(), Call((8, 8, 8, END))
        service.submit(crashing, staying)
        service.gate.wait_until_held(2)
        service.decoder.fault = once(RuntimeError("broken"))
        service.gate.open()
        calls = [crashing, staying, *calls_of(4)]
        service.submit(*calls[2:])
        assert [call.target for call in calls] == sources_of(calls)
        assert restarts(service) == {"crash": 1}


def test_closing_answers_suspects_too() -> None:
    with serving(supervision=SUPERVISED) as service:
        calls = calls_of(3)
        service.decoder.fault = once(RuntimeError("broken"))
        service.submit(*calls)
        service.gate.wait_until_held()
        service.gate.let(1)
        service.gate.wait_until_held()  # the first of them is tried
        closing = threading.Thread(target=service.runner.close)
        closing.start()
        wait_until(lambda: service.runner._supervisor.workers[0].leaving)
        service.gate.open()
        closing.join(WAIT_S)
        for call in calls:
            assert not isinstance(call.answer(), Finished)
    assert all(call.told_nothing for call in calls)


def test_a_batch_that_does_not_open_again_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(supervision=SUPERVISED) as service:
        service.decoder.fault = once(RuntimeError("broken"))

        def refuse(rows: int) -> object:
            raise MemoryError

        call = Call()
        service.submit(call)
        service.gate.wait_until_held()
        monkeypatch.setattr(service.decoder, "open_cache", refuse)
        service.gate.open()
        assert isinstance(call.error, MemoryError)
        assert isinstance(service.runner.failure.result(WAIT_S), MemoryError)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.001)


def test_what_a_runner_has_is_free_when_it_is_closed_in_the_middle_of_a_turn() -> None:
    with serving(supervision=SUPERVISED) as service:
        service.submit(call := Call())
        service.gate.wait_until_held()
        time.sleep(0.1)  # somebody looks whether that turn hangs
        closing = threading.Thread(target=service.runner.close, args=(WAIT_S,))
        closing.start()
        wait_until(partial(getattr, service.runner, "_closing"))
        service.submit(late := Call())
        assert isinstance(late.error, Closing)
        service.gate.open()
        closing.join()
        assert isinstance(call.error, Closing)
    runner = weakref.ref(service.runner)
    gc.disable()  # what is free only once cycles are looked for is there for as long as nobody looks
    try:
        del service, call, late
        wait_until(lambda: runner() is None)  # somebody may be looking just now
    finally:
        gc.enable()
