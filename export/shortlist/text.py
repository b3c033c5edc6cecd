"""The text that a shortlist is counted over: two files whose lines translate each other, or one.

One file has a tab in every line, between a source and its target, or in none: it then has sources alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from export.inputs import InputError, lines_of

LEAST_LINES = 100
"""A word that is missing from a list cannot be said: fewer lines than these have hardly any."""

WORDS_AND_PROBABILITY = re.compile(r"\S+ \S+ [0-9.]+(e-?[0-9]+)?")
"""A line of a lexical table in text, as Marian's `lex.s2t`."""


@dataclass(frozen=True)
class Text:
    """Line n of the targets is the translation of line n of the sources."""

    sources: Sequence[str]
    targets: Sequence[str] | None
    """None: the model translates the sources itself."""


def read_text(files: Sequence[Path]) -> Text:
    """Reads the files of --shortlist. Raises InputError."""
    if len(files) > 2:
        raise InputError(f"--shortlist is given {len(files)} times; give a file of sources and one of their targets")
    lines = [_read_lines(file) for file in files]
    text = _split(files[0], lines[0]) if len(lines) == 1 else _both(files, lines)
    if len(text.sources) < LEAST_LINES:
        raise InputError(f"{files[0]} has {len(text.sources)} lines; a shortlist takes at least {LEAST_LINES}")
    return text


def _read_lines(file: Path) -> list[str]:
    lines = lines_of(file.read_bytes(), file)
    if lines == [""]:
        raise InputError(f"{file} is empty; a shortlist takes at least {LEAST_LINES} lines")
    return lines


def _both(files: Sequence[Path], lines: Sequence[list[str]]) -> Text:
    sources, targets = lines
    if len(sources) != len(targets):
        raise InputError(
            f"{files[0]} has {len(sources)} lines and {files[1]} has {len(targets)}; line n of one must be the "
            "translation of line n of the other"
        )
    for file, side in zip(files, lines, strict=True):
        _refuse_empty(file, side)
    return Text(sources, targets)


def _split(file: Path, lines: list[str]) -> Text:
    fields = [line.split("\t") for line in lines]
    wanted = len(fields[0])
    if wanted > 2:
        raise InputError(f"{file}, line 1 has {wanted} columns; expected a source, or a source and its target")
    for number, line in enumerate(fields, 1):
        if len(line) != wanted:
            raise InputError(f"{file}, line {number} has {len(line)} columns; line 1 has {wanted}")
    if wanted == 1 and all(map(WORDS_AND_PROBABILITY.fullmatch, lines[:LEAST_LINES])):
        way = "give its binary form, which marian-conv makes, or the text that it was counted over"
        raise InputError(f"{file} has two words and a probability on each line, which is a list in text: {way}")
    sides = [list(side) for side in zip(*fields, strict=True)]
    for side in sides:
        _refuse_empty(file, side)
    return Text(sides[0], sides[1] if wanted == 2 else None)


def _refuse_empty(file: Path, lines: Sequence[str]) -> None:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise InputError(f"{file}, line {number} is empty; leave the line and its translation out")
