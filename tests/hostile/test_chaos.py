"""Callers who leave, hurry or read slowly beside strangers: whoever gets an answer gets the one that is theirs."""

import asyncio
import signal
import time
from pathlib import Path

import pytest
from grpc import aio

from bench.soak.callers import Callers, Tally
from bench.soak.questions import Wanted, answers_alone, short_texts
from bench.soak.strangers import attack
from tests.server_process import ServerProcess, eventually, server_process

ANSWERS, MOST_S, LEAST = 20_000, 12.0, 200
"""So many are compared, or as many as there are in so long. `python -m bench.soak` goes on for hours."""
TEXTS = 24
KINDS = Wanted(1, 6), Wanted(4, 4), Wanted(0)
TOGETHER = 32
GAUGES = "dragoman_rows_live", "dragoman_requests_waiting", "dragoman_rpc_in_flight"
pytestmark = pytest.mark.timeout(900)


async def chaos(server: ServerProcess) -> Tally:
    """Until enough answers were compared, or the time is over."""
    async with aio.insecure_channel(server.target) as channel:
        alone = await answers_alone(channel, short_texts(TEXTS, seed=1), kinds=KINDS)
    callers = Callers(server.target, alone, seed=1, most_contents=256, no_cache=0.2)
    ends_s = time.monotonic() + MOST_S

    def over() -> bool:
        return callers.tally.answers >= ANSWERS or time.monotonic() > ends_s

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(callers.run(TOGETHER, over))
        strangers = tasks.create_task(attack(server, 1, over))
    assert strangers.result()
    return callers.tally


def test_all_answers_are_those_alone() -> None:
    with server_process(Path("models/zoo/en-pt-int8")) as server:
        tally = asyncio.run(chaos(server))
        assert not tally.wrong, tally.wrong[:3]
        assert not tally.broken, tally.ends
        assert tally.answers > LEAST
        assert tally.answers > tally.reused > 0
        assert tally.ends["left"]
        eventually(lambda: not any(server.metrics()(name) for name in GAUGES))
        assert server.end(signal.SIGTERM) == 0
        assert server.process.stderr is not None
        assert "ERROR" not in (told := server.process.stderr.read()), told
