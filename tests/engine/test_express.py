"""The express worker: whom another caller's rows hinder is answered beside them, whatever fails."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from engine.errors import Quarantined
from engine.queueing.cost import Work
from engine.request import Encoded
from engine.supervision.policy import UNSUPERVISED, Supervision
from tests.engine.calling import END, ENDLESS, SOURCE, Call, Service, serving, sources_of
from tests.engine.supervision.faults import POISON, SUPERVISED, Sources, once, poisoned, restarts

ROWS, EXPRESS_ROWS = 8, 2


@contextmanager
def beside_a_greedy_one(supervision: Supervision = UNSUPERVISED) -> Iterator[tuple[Service, Call]]:
    """A worker in whose batch a caller holds most rows, and is in a step that does not end by itself."""
    with serving(max_rows=ROWS, supervision=supervision, express_rows=EXPRESS_ROWS) as service:
        service.submit(greedy := Call(ENDLESS, num_beams=4, caller="greedy"))
        service.gate.wait_until_held()
        service.step_until(lambda: service.live_rows[0] == 4, 1)
        yield service, greedy
        greedy.request.cancel()


def test_whoever_is_hindered_is_answered_beside_the_steps_of_the_other() -> None:
    with beside_a_greedy_one() as (service, _):
        modest = [Call((first, 5, END), caller="modest") for first in (3, 4, 5)]
        beams = Call((9, 8, END), num_beams=2, caller="another")
        service.submit(*modest, beams)
        service.step_until(lambda: service.live_rows[1] > 0, 2)
        service.gate.open()
        calls = [*modest, beams]
        assert [call.target for call in calls] == sources_of(calls)
        assert service.sample("dragoman_rows_capacity") == ROWS + EXPRESS_ROWS


def test_vectors_are_made_beside_the_steps_of_the_other_too() -> None:
    with beside_a_greedy_one() as (service, _):
        service.submit(*(vectors := [Call.for_vector(caller) for caller in ("modest", "another", "modest")]))
        assert all(isinstance(call.answer(), Encoded) for call in vectors)
        assert service.live_rows == [4, 0]


def test_whoever_makes_it_crash_is_found_and_nobody_else_is_harmed() -> None:
    with beside_a_greedy_one(SUPERVISED) as (service, greedy):
        service.decoder.fault = poisoned
        service.submit(poison := Call(POISON, caller="modest"))
        service.gate.open()
        assert isinstance(poison.error, Quarantined)
        service.submit(after := Call(caller="modest"))
        assert after.target == SOURCE
        assert restarts(service) == {"crash": 2}
        assert greedy.told_nothing


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own")
def test_it_is_nicer_than_nobody_in_every_life() -> None:
    with beside_a_greedy_one(replace(SUPERVISED, nice=3)) as (service, _):
        found, broken = list[int](), once(RuntimeError("broken"))

        def fault(sources: Sources) -> None:
            if SOURCE in sources:
                found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
                broken(sources)

        service.decoder.fault = fault
        service.submit(modest := Call(caller="modest"))
        service.gate.open()
        assert modest.target == SOURCE
    assert len(found) > 1
    assert set(found) == {os.getpriority(os.PRIO_PROCESS, os.getpid())}


def test_a_forecast_knows_who_goes_there() -> None:
    with beside_a_greedy_one() as (service, _):
        work = Work(1, 8, 8, 1, 16, "modest")
        alone_s = service.runner._cost.express_s(work, 1)
        assert service.runner.finish_s(work) == pytest.approx(alone_s)
        assert service.runner.finish_s(work._replace(caller="greedy")) > alone_s
        assert service.runner.finish_s(work._replace(contents=EXPRESS_ROWS + 1)) > alone_s
        vector = work._replace(beams=0, max_new_tokens=0)
        assert service.runner.finish_s(vector) == service.runner._cost.spent(8, 0)


def test_it_ends_with_the_others() -> None:
    with serving(max_rows=ROWS, express_rows=EXPRESS_ROWS) as service:
        threads = [worker.thread for worker in service.runner._supervisor.workers]
        assert len(threads) == 2 and all(thread.is_alive() for thread in threads)
        service.submit(Call(caller="a"))
    assert not any(thread.is_alive() for thread in threads)
