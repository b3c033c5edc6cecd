"""What makes a translation look wrong, whoever asked for it: signs to count and to tell, not reasons to refuse."""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from models.scripts import LATIN, is_written_in, letters_of, script

LONGEST_LOOP = 8
"""Most tokens of a block that is taken to be repeated: models that loop do so over a word or a short phrase."""
REPEATS = 4
"""Blocks in a row that make a loop. Three occur in good texts, as in "very, very, very"."""
LOOP_TOKENS = 12
"""Least tokens of a loop, so that "ha ha ha ha" is none."""
COPY_TOKENS = 5
"""Least tokens of a copy: names, numbers and greetings may well be the same in two languages."""
LENGTH_RATIO = 3
"""Between the longer of source and target and the other, from which on one of them lacks something. FLORES has targets
of 0.45 to 2.07 times the tokens of their sources (997 sentences, `models/zoo`, both directions)."""
RATIO_TOKENS = 12
"""Least tokens of the longer one."""
SCRIPT_LETTERS = 10
"""Least letters whose script is judged: abbreviations and names may well be in another one."""


class GuardFlag(Enum):
    """How a translation looks wrong."""

    REPETITION = "repetition"
    COPY = "copy"
    LENGTH_LIMIT = "length_limit"
    LENGTH_RATIO = "length_ratio"
    SCRIPT = "script"


class Translated(NamedTuple):
    """What is judged."""

    source: str
    text: str
    token_ids: Sequence[int]
    """Of the target, without an end token."""
    source_tokens: int
    """Likewise."""
    cut: bool = False
    """The target has no end token."""
    language: str = ""
    """Of the target (BCP 47). Empty: it is not known."""


def guard_flags(of: Translated) -> Iterator[GuardFlag]:
    """How it looks wrong."""
    if ends_in_loop(of.token_ids):
        yield GuardFlag.REPETITION
    if len(of.token_ids) >= COPY_TOKENS and of.text.split() == of.source.split():
        yield GuardFlag.COPY
    if of.cut:
        yield GuardFlag.LENGTH_LIMIT
    shorter, longer = sorted((len(of.token_ids), of.source_tokens))
    if longer >= RATIO_TOKENS and longer > LENGTH_RATIO * shorter:
        yield GuardFlag.LENGTH_RATIO
    if is_of_another_script(of.text, of.language):
        yield GuardFlag.SCRIPT


def ends_in_loop(token_ids: Sequence[int]) -> bool:
    """Whether the last tokens are one block over and over, the last of them cut or not."""
    if not token_ids or token_ids[-1] not in token_ids[-1 - LONGEST_LOOP : -1]:  # as in most texts: no block ends so
        return False
    for size in range(1, LONGEST_LOOP + 1):
        length = max(REPEATS * size, LOOP_TOKENS)
        tail = token_ids[-length:]
        if len(tail) == length and tail[size:] == tail[:-size]:
            return True
    return False


def is_of_another_script(text: str, language: str) -> bool:
    """Whether most letters are of none that the language is written in."""
    expected = letters_of(language)
    if not expected or (expected == LATIN and text.isascii()) or is_written_in(text, expected):
        return False
    letters = [script(character) for character in text if character.isalpha()]
    return len(letters) >= SCRIPT_LETTERS and 2 * sum(one in expected for one in letters) < len(letters)
