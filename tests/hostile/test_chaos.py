"""Callers who leave, hurry or read slowly beside strangers: whoever gets an answer gets the one that is theirs."""

import asyncio
import signal

import pytest
from grpc import aio

from bench.soak.callers import OF_ENGINES, Callers, Tally
from bench.soak.questions import Alone, Wanted, answers_alone, short_texts
from bench.soak.strangers import attack
from models.package.folder import Package
from tests.server_process import ServerProcess, eventually, server_process

PARTS, ANSWERS = 4, 25_000
"""So many are compared in each part. `python -m bench.soak` goes on for hours."""
FAULTS = """
import sys
from bench.soak import faulty_server
faulty_server.TURNS_BETWEEN = 40
sys.exit(faulty_server.main(sys.argv[1:]))
"""
"""A server whose engine crashes and hangs, and more often than the soak's: one part takes a thousand steps or two."""
TEXTS = 24
KINDS = Wanted(1, 6), Wanted(4, 4), Wanted(0)
TOGETHER = 32
GAUGES = "dragoman_rows_live", "dragoman_requests_waiting", "dragoman_rpc_in_flight"
pytestmark = pytest.mark.timeout(900)


async def all_alone(server: ServerProcess, seed: int) -> Alone:
    """What each text is answered, one after the other."""
    async with aio.insecure_channel(server.target) as channel:
        return await answers_alone(channel, short_texts(TEXTS, seed), kinds=KINDS)


async def chaos(server: ServerProcess, seed: int, alone: Alone) -> Tally:
    """Until enough answers were compared."""
    callers = Callers(server.target, alone, seed, most_contents=256, no_cache=0.2)

    def over() -> bool:
        return callers.tally.answers >= ANSWERS

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(callers.run(TOGETHER, over))
        strangers = tasks.create_task(attack(server, seed, over))
    assert strangers.result()
    return callers.tally


def hold(server: ServerProcess, tally: Tally) -> None:
    """All that was answered was right, and nothing is left."""
    assert not tally.wrong, tally.wrong[:3]
    assert tally.answers >= ANSWERS
    assert tally.answers > tally.reused > 0
    assert tally.ends["left"]
    eventually(lambda: not any(server.metrics()(name) for name in GAUGES))
    assert server.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("part", range(1, PARTS))
def test_all_answers_are_those_alone(part: int, tiny_package: Package) -> None:
    with server_process(tiny_package.folder) as server:
        tally = asyncio.run(chaos(server, part, asyncio.run(all_alone(server, part))))
        assert not tally.broken, tally.ends
        hold(server, tally)
        assert server.process.stderr is not None
        assert "ERROR" not in (told := server.process.stderr.read()), told


def test_so_they_are_while_engines_crash_and_hang(tiny_package: Package) -> None:
    with server_process(tiny_package.folder) as well:
        alone = asyncio.run(all_alone(well, PARTS))
    with server_process(tiny_package.folder, "--engine-restarts", 10_000, program=FAULTS) as server:
        tally = asyncio.run(chaos(server, PARTS, alone))
        assert set(tally.broken) <= set(OF_ENGINES), tally.ends
        assert server.metrics()("dragoman_engine_restarts_total") > 0
        hold(server, tally)
