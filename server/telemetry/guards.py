"""What makes a translation look wrong, whoever asked for it: signs to count, not reasons to refuse."""

from collections.abc import Iterator, Sequence
from enum import Enum

LONGEST_LOOP = 8
"""Most tokens of a block that is taken to be repeated: models that loop do so over a word or a short phrase."""
REPEATS = 4
"""Blocks in a row that make a loop. Three occur in good texts, as in "very, very, very"."""
LOOP_TOKENS = 12
"""Least tokens of a loop, so that "ha ha ha ha" is none."""
COPY_TOKENS = 5
"""Least tokens of a copy: names, numbers and greetings may well be the same in two languages."""


class GuardFlag(Enum):
    """How a translation looks wrong."""

    REPETITION = "repetition"
    COPY = "copy"


def guard_flags(source: str, text: str, token_ids: Sequence[int]) -> Iterator[GuardFlag]:
    """The flags of a translation `text`, of these target tokens without an end token."""
    if ends_in_loop(token_ids):
        yield GuardFlag.REPETITION
    if len(token_ids) >= COPY_TOKENS and text.split() == source.split():
        yield GuardFlag.COPY


def ends_in_loop(token_ids: Sequence[int]) -> bool:
    """Whether the last tokens are one block over and over, the last of them cut or not."""
    for size in range(1, LONGEST_LOOP + 1):
        length = max(REPEATS * size, LOOP_TOKENS)
        tail = token_ids[-length:]
        if len(tail) == length and tail[size:] == tail[:-size]:
            return True
    return False
