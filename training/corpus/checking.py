"""Looks in a built corpus for what models are scored with."""

import sys
from collections.abc import Iterator
from pathlib import Path

from training.corpus.errors import CorpusError
from training.corpus.held_out import Excluded, is_held_out, listed
from training.data.text import read_lines
from training.errors import TrainingError

TEXTS = {
    "pairs.en": "pairs.origins",
    "pairs.pt": "pairs.origins",
    "mono.en": "mono.en.origins",
    "mono.pt": "mono.pt.origins",
}
"""Every text, and where its lines come from."""
SHOWN = 10
"""Findings that are printed."""


def run(folder: Path, held_out: Path) -> int:
    """Returns 0, 1 where something excluded is found, or 2 where the corpus cannot be read."""
    try:
        excluded = Excluded([*listed(held_out), *_held_out(folder)])
        lines = sum(len(_lines(folder / name)) for name in TEXTS)
        found = list(findings(folder, excluded))
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("".join(f"{finding}\n" for finding in found[:SHOWN]), end="")
    print(f"{lines:,} lines compared with {len(excluded):,} sentences: {len(found)} excluded ones found")
    return 1 if found else 0


def findings(folder: Path, excluded: Excluded) -> Iterator[str]:
    """Lines that the corpus must not have. Raises CorpusError where texts and origins do not match."""
    for text in TEXTS:
        for number, (line, place) in enumerate(lines_with_origins(folder, text), 1):
            source, _, document = place.partition("\t")
            if is_held_out(source, document):
                yield f"{text}, line {number} is of a held-out document, {document} of {source}: {line}"
            elif line in excluded:
                yield f"{text}, line {number} is excluded: {line}"


def lines_with_origins(folder: Path, text: str) -> list[tuple[str, str]]:
    """The lines of a text of the corpus, each with where it is from. Raises CorpusError where there are not as many."""
    origins = TEXTS[text]
    lines, places = _lines(folder / text), _lines(folder / origins)
    if len(lines) != len(places):
        raise CorpusError(f"{text} has {len(lines)} lines and {origins} has {len(places)}; build the corpus again")
    return list(zip(lines, places, strict=True))


def _held_out(folder: Path) -> list[str]:
    """Sentences of the held-out documents."""
    return _lines(folder / "held_out.txt")


def _lines(file: Path) -> list[str]:
    """A corpus of few sources may have none."""
    return [] if file.is_file() and not file.stat().st_size else read_lines(file)
