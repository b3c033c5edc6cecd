"""engine.affinity: on two cores the event loop has one worker beside it, and the other has a core for itself."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman import Client
from engine.affinity import cores_apart, keep_to
from engine.devices.machine import usable_cores
from models.package.folder import Package
from tests.engine.calling import SOURCE, Call, serving
from tests.engine.supervision.faults import SUPERVISED, Sources, once, together
from tests.server_process import server_process

CORES = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []

pytestmark = pytest.mark.skipif(
    len(CORES) < 2 or usable_cores() < 2, reason="needs a system that places threads, and two cores"
)


@pytest.fixture
def two_cores() -> Iterator[tuple[int, int]]:
    """As if the machine had no more: for this thread, and for processes that it starts."""
    first, second = CORES[:2]
    os.sched_setaffinity(0, (first, second))
    yield first, second
    os.sched_setaffinity(0, CORES)


def cores_of_threads(process: int) -> dict[int, list[int]]:
    """By thread of a process: where it may run."""
    threads = (int(thread.name) for thread in Path(f"/proc/{process}/task").iterdir())
    return {thread: sorted(os.sched_getaffinity(thread)) for thread in threads}


def test_the_event_loop_and_the_first_worker_share_a_core_and_the_second_worker_has_the_other(
    two_cores: tuple[int, int], tiny_package: Package
) -> None:
    first, second = two_cores
    with server_process(tiny_package.folder) as server, Client(server.target) as client:
        client.translate("w10 w11")
        cores = cores_of_threads(server.process.pid)
        assert cores.pop(server.process.pid) == [first]
        assert [first] in cores.values()
        assert list(cores.values()).count([second]) == 1
        assert [first, second] in cores.values(), "what only waits runs anywhere, and the express worker does"


def test_with_one_worker_threads_run_anywhere(two_cores: tuple[int, int], tiny_package: Package) -> None:
    with server_process(tiny_package.folder, "--workers", "1") as server:
        assert set(map(tuple, cores_of_threads(server.process.pid).values())) == {two_cores}


def test_a_worker_keeps_to_its_core_in_every_life(two_cores: tuple[int, int]) -> None:
    found, broken = list[set[int]](), once(RuntimeError("broken"))

    def fault(sources: Sources) -> None:
        if SOURCE in sources:
            found.append(os.sched_getaffinity(0))
            broken(sources)

    with serving(supervision=replace(SUPERVISED, cores=two_cores[1:])) as service:
        together(service, [call := Call()], fault)
        assert call.target == SOURCE
    assert len(found) > 1
    assert all(one == {two_cores[1]} for one in found)


def test_there_are_two_sides_only_where_all_of_two_cores_may_be_used(
    two_cores: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cores_apart() == two_cores
    monkeypatch.setattr("engine.affinity.usable_cores", lambda: 1)
    assert cores_apart() == (), "a container's quota"
    monkeypatch.undo()
    keep_to(two_cores[:1])
    assert cores_apart() == (), "one core"
    keep_to(())
    assert os.sched_getaffinity(0) == {two_cores[0]}
    keep_to([max(CORES) + 4096])
    assert os.sched_getaffinity(0) == {two_cores[0]}, "a core that there is not"
