"""Messages that were changed at random are answered, each with a reason or with an answer."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.hostile.fuzz import sending
from tests.hostile.fuzz.messages import Sent
from tests.hostile.fuzz.sending import LATE, Stops, answered, fuzz
from tests.virtual_time import VirtualTime

PARTS, MESSAGES = 4, 2500
"""In the suite over gRPC, and in each part of it. `python -m tests.hostile.fuzz` sends as many as wanted."""
HANDED_PARTS, HANDED_MESSAGES = 6, 15_000
"""The same that handlers are handed."""


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_mutated_message_is_answered(part: int) -> None:
    told = await fuzz(part * MESSAGES, MESSAGES)
    assert told["OK"] > MESSAGES // 10
    assert told["INVALID_MESSAGE"] > MESSAGES // 20
    assert len(told) > 8


@pytest.mark.parametrize("part", range(HANDED_PARTS))
async def test_so_is_every_one_that_handlers_are_handed(part: int) -> None:
    told = await fuzz(PARTS * MESSAGES + part * HANDED_MESSAGES, HANDED_MESSAGES, handed=True)
    assert told["OK"] > HANDED_MESSAGES // 10
    assert told["INVALID_MESSAGE"] > HANDED_MESSAGES // 20
    assert len(told) > 12


async def test_handlers_that_are_handed_messages_answer_as_they_do_over_grpc() -> None:
    sent, handed = await fuzz(0, 500), await fuzz(0, 500, handed=True)
    assert sent - Counter({LATE: sent[LATE]}) == handed


def test_a_seed_is_a_message() -> None:
    assert Sent.of(7) == Sent.of(7) != Sent.of(8)


class Late:
    """A channel whose answers take too long: once for each pause, in which the event loop has no turn."""

    def __init__(self, pauses_s: Sequence[float]) -> None:
        self._pauses_s = list(pauses_s)

    def unary_unary(self, path: str) -> Any:
        async def call(data: bytes, timeout: float) -> bytes:
            if self._pauses_s:
                loop = asyncio.get_running_loop()
                assert isinstance(loop, VirtualTime)
                loop.stand_still(self._pauses_s.pop(0))
                await asyncio.sleep(0.05)
                raise TimeoutError
            return b""

        return call


async def told(pauses_s: Sequence[float]) -> list[str]:
    stops = Stops()
    watching = asyncio.create_task(stops.watch())
    await asyncio.sleep(0)
    try:
        return await answered(Late(pauses_s), Sent(7, "/x", "unary_unary", b""), stops)
    finally:
        watching.cancel()


def test_a_message_that_is_late_twice_is_told_unless_the_process_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "LOOK_S", 0.02)
    monkeypatch.setattr(sending, "STOPPED_S", 0.2)
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        monkeypatch.setattr(sending, "time", SimpleNamespace(monotonic=runner.get_loop().time))
        assert runner.run(told([])) == ["OK"]
        assert runner.run(told([0.0])) == ["OK", LATE]
        assert runner.run(told([0.0, 0.3, 0.3])) == ["OK", *[LATE] * 3]
        with pytest.raises(TimeoutError):
            runner.run(told([0.0, 0.3, 0.0]))
