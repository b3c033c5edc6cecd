"""Prose of all kinds and software in measure, for a teacher and a student to translate; and pairs of sentences."""

import random
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from training import command
from training.config import ParallelText
from training.corpus.checking import lines_with_origins
from training.corpus.errors import CorpusError
from training.data.files import write_lines
from training.data.text import TextPair, read_pair

SHARES = {
    "Wikipedia, a few articles": 1,
    "An Anarchist FAQ": 1,
    "Endless Sky": 1,
    "Freeciv": 1,
    "GNOME help": 1,
    "Jargon File": 1,
    "KDE handbooks": 1,
    "State of the Union addresses": 1,
    "Wesnoth": 1,
    "history of Debian": 1,
    "sky cultures of Stellarium": 1,
    "fortunes": 0.8,
    "novels of Jane Austen": 0.7,
    "WordNet examples": 0.7,
    "dictionary of computing (FOLDOC)": 0.7,
    "GIMP help": 0.5,
    "WordNet definitions": 0.5,
    "LibreOffice help": 0.3,
    "package descriptions": 0.3,
    "manual pages": 0.2,
    "Linux kernel documentation": 0.15,
}
"""How much of a source's English sentences is taken: prose of all kinds, and software in measure."""
OTHERS = 0.4
WORDS = range(4, 51)
"""Of a sentence to be translated."""
PAIR_WORDS = range(3, 61)
"""Of either side of a pair. Shorter ones are labels, of which no sentence is learnt."""
VALIDATION = 300
"""Pairs to validate with."""
SEED = 7


def run(corpus: Path, out: Path, teacher: int, student: int) -> int:
    """Returns 0, 2 where the corpus cannot be read or is too small, or 130 after Ctrl-C.

    teacher, student: how many sentences each is to translate
    """
    return command.run(lambda console: choose(corpus, out, teacher, student, console))


def choose(corpus: Path, out: Path, teacher: int, student: int, console: Console) -> None:
    """Writes the text. Raises CorpusError where the corpus is too small."""
    english = sentences(lines_with_origins(corpus, "mono.en"))
    kept = pairs(read_pair(ParallelText(source=corpus / "pairs.en", target=corpus / "pairs.pt")))
    if len(kept) <= VALIDATION:
        raise CorpusError(
            f"{corpus} has {len(kept):,} pairs of sentences; more than {VALIDATION} are needed, "
            f"of which {VALIDATION} are to validate with. Build it of more sources"
        )
    held_out = {source.casefold() for source, _ in kept[:VALIDATION]}
    english = [line for line in english if line.casefold() not in held_out]
    needed = teacher + student
    if len(english) < needed:
        raise CorpusError(
            f"{corpus} has {len(english):,} sentences to choose; {needed:,} are needed. Lower --teacher or --student"
        )
    write_lines(out / "teacher.en", english[:teacher])
    write_lines(out / "student.en", english[teacher:needed])
    for side, language in enumerate(("en", "pt")):
        write_lines(out / f"valid.{language}", [pair[side] for pair in kept[:VALIDATION]])
        write_lines(out / f"train.{language}", [pair[side] for pair in kept[VALIDATION:]])
    console.print(f"{out} is ready: {needed:,} sentences, {len(kept):,} pairs", highlight=False, soft_wrap=True)


def sentences(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Sentences of a fitting length, of each source its share. The corpus has them in random order already.

    lines: each with where it is from
    """
    draw = random.Random(SEED)
    return [
        line
        for line, origin in lines
        if len(line.split()) in WORDS and draw.random() < SHARES.get(origin.partition("\t")[0], OTHERS)
    ]


def pairs(text: TextPair) -> list[tuple[str, str]]:
    """Pairs of sentences."""
    both = zip(text.source, text.target, strict=True)
    return [pair for pair in both if all(len(side.split()) in PAIR_WORDS for side in pair)]
