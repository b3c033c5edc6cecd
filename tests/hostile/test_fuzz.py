"""Messages that were changed at random are answered, each with a reason or with an answer."""

from collections import Counter

import pytest

from tests.hostile.fuzz.messages import Sent
from tests.hostile.fuzz.sending import LATE, fuzz

PARTS, MESSAGES = 4, 2500
"""In the suite, and in each part of it. `python -m tests.hostile.fuzz` sends as many as wanted."""


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_mutated_message_is_answered(part: int) -> None:
    told = await fuzz(part * MESSAGES, MESSAGES)
    assert told["OK"] > MESSAGES // 10
    assert told["INVALID_MESSAGE"] > MESSAGES // 20
    assert len(told) > 8


async def test_handlers_that_are_handed_messages_answer_as_they_do_over_grpc() -> None:
    sent, handed = await fuzz(0, 500), await fuzz(0, 500, handed=True)
    assert sent - Counter({LATE: sent[LATE]}) == handed


def test_a_seed_is_a_message() -> None:
    assert Sent.of(7) == Sent.of(7) != Sent.of(8)
