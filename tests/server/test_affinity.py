"""server.affinity: on two cores the event loop has one worker beside it, and the other has a core for itself."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dragoman import Client
from engine.devices.machine import usable_cores
from models.package.folder import Package
from server.affinity import BUSY, SPARE, TwoSides, two_cores
from tests.engine.calling import ENDLESS, Call, serving
from tests.engine.test_express import beside_a_greedy_one
from tests.server_process import eventually, server_process

CORES = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []

pytestmark = pytest.mark.skipif(
    len(CORES) < 2 or usable_cores() < 2, reason="needs a system that places threads, and two cores"
)


@pytest.fixture
def both() -> Iterator[tuple[int, int]]:
    """As if the machine had no more cores: for this thread, and for processes that it starts."""
    first, second = CORES[:2]
    os.sched_setaffinity(0, (first, second))
    yield first, second
    os.sched_setaffinity(0, CORES)


@contextmanager
def workers(count: int) -> Iterator[list[int]]:
    """Threads that wait."""
    end, begun, ids = threading.Event(), threading.Barrier(count + 1), list[int]()

    def live() -> None:
        ids.append(threading.get_native_id())
        begun.wait()
        end.wait()

    threads = [threading.Thread(target=live) for _ in range(count)]
    for thread in threads:
        thread.start()
    begun.wait()
    try:
        yield ids
    finally:
        end.set()
        for thread in threads:
            thread.join()


def nobody() -> bool:
    """Is with an express worker."""
    return False


def places(threads: Sequence[int]) -> list[tuple[int, ...]]:
    """Where the thread that calls may run, and where these may."""
    return [tuple(sorted(os.sched_getaffinity(thread))) for thread in (0, *threads)]


def test_the_event_loop_and_first_workers_share_a_core_and_second_workers_have_the_other(both: tuple[int, int]) -> None:
    first, second = both
    with workers(2) as one, workers(2) as other, workers(1) as small:
        sides = TwoSides(both, lambda: [one, other, small], nobody)
        sides.look(0.0)
        assert places([*one, *other, *small]) == [(first,), (first,), (second,), (first,), (second,), both]


def test_while_the_event_loop_is_busy_threads_run_anywhere(both: tuple[int, int]) -> None:
    with workers(2) as threads:
        sides = TwoSides(both, lambda: [threads], nobody)
        seen = list[bool]()
        for share in (0.0, 1.0, 1.0, 1.0, (SPARE + BUSY) / 2, (SPARE + BUSY) / 2, 0.0, (SPARE + BUSY) / 2):
            sides.look(share)
            seen.append(sides.apart)
            assert places(threads) == ([both[:1], both[:1], both[1:]] if sides.apart else [both] * 3)
        assert seen == [True, True, False, False, False, False, True, True]


def test_while_somebody_is_with_an_express_worker_threads_run_anywhere(both: tuple[int, int]) -> None:
    hindered = [True]
    with workers(2) as threads:
        sides = TwoSides(both, lambda: [threads], lambda: hindered[0])
        seen = list[bool]()
        for hindered[0] in (False, True, True, True, False, False):
            sides.look(0.0)
            seen.append(sides.apart)
        assert seen == [True, True, False, False, True, True]


def test_with_one_worker_or_none_that_lives_threads_run_anywhere(both: tuple[int, int]) -> None:
    with workers(1) as threads:
        TwoSides(both, lambda: [threads], nobody).look(0.0)
        assert places(threads) == [both, both]
    with workers(2) as threads:
        pass
    TwoSides(both, lambda: [threads], nobody).look(0.0)
    assert places([]) == [both[:1]], "they have ended since they were asked for"


def test_an_engine_tells_the_threads_of_its_workers_and_not_the_express_ones() -> None:
    with serving(workers=2, max_rows=8, express_rows=2) as service:
        named = {thread.name: thread.native_id for thread in threading.enumerate()}
        assert service.runner.threads == [named["engine-0"], named["engine-1"]]
        assert "engine-2" in named
    assert service.runner.threads == []


def test_an_engine_tells_that_somebody_is_with_its_express_worker() -> None:
    with beside_a_greedy_one() as (service, _):
        assert not service.runner.expresses
        service.submit(modest := Call(ENDLESS, caller="modest"))
        service.step_until(lambda: service.live_rows[1] == 1, 2)
        assert service.runner.expresses
        modest.request.cancel()


def cores_of_threads(process: int) -> dict[int, list[int]]:
    """By thread of a process: where it may run."""
    found = dict[int, list[int]]()
    for thread in map(int, os.listdir(f"/proc/{process}/task")):
        with suppress(ProcessLookupError):  # it has ended
            found[thread] = sorted(os.sched_getaffinity(thread))
    return found


def test_a_server_of_two_workers_has_two_sides(both: tuple[int, int], tiny_package: Package) -> None:
    """Of its threads the express worker runs anywhere. All do while the event loop waits for a core."""
    first, second = both
    with server_process(tiny_package.folder) as server, Client(server.target) as client:
        eventually(lambda: os.sched_getaffinity(server.process.pid) == {first})
        client.translate("w10 w11")

        def has_two_sides() -> bool:
            cores = list(cores_of_threads(server.process.pid).values())
            return cores.count([second]) == 1 and [first, second] in cores

        eventually(has_two_sides)


def test_a_server_of_one_worker_has_none(both: tuple[int, int], tiny_package: Package) -> None:
    with server_process(tiny_package.folder, "--workers", "1") as server, Client(server.target) as client:
        client.translate("w10 w11")
        assert set(map(tuple, cores_of_threads(server.process.pid).values())) == {both}


def test_there_are_two_cores_only_where_all_of_both_may_be_used(
    both: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert two_cores() == both
    with monkeypatch.context() as patched:
        patched.setattr("server.affinity.usable_cores", lambda: 1)
        assert two_cores() == (), "a container's quota"
    with monkeypatch.context() as patched:
        patched.setattr("server.affinity.SCHEDULED", Path("/proc/none"))
        assert two_cores() == (), "a system that does not tell how long threads wait"
    os.sched_setaffinity(0, both[:1])
    assert two_cores() == ()
