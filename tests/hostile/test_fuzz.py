"""Messages that were changed at random are answered, each with a reason or with an answer."""

import pytest

from tests.hostile.fuzz import Sent, fuzz

PARTS, MESSAGES = 4, 2500
"""In the suite, and in each part of it. `python -m tests.hostile.fuzz` sends as many as wanted."""


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_mutated_message_is_answered(part: int) -> None:
    told = await fuzz(part * MESSAGES, MESSAGES)
    assert told["OK"] > MESSAGES // 10
    assert told["INVALID_MESSAGE"] > MESSAGES // 20
    assert len(told) > 8


def test_a_seed_is_a_message() -> None:
    assert Sent.of(7) == Sent.of(7) != Sent.of(8)
