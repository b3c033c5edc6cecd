"""Chooses from a corpus the training text of models/zoo: python -m training.corpus.choose CORPUS OUT."""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from training.command import run
from training.config import ParallelText
from training.corpus.check import lines_with_origins
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
TEACHER, STUDENT = 48_000, 210_000
"""Sentences for the teacher and for the student to translate."""
VALIDATION = 300
"""Pairs to validate with."""
SEED = 7


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 where the corpus cannot be read or is too small."""
    parser = argparse.ArgumentParser("python -m training.corpus.choose", description=__doc__)
    parser.add_argument("corpus", type=Path, help="what python -m training.corpus wrote")
    parser.add_argument(
        "out", type=Path, help="folder of teacher.en, student.en, train.en, train.pt, valid.en, valid.pt"
    )
    parser.add_argument("--teacher", type=int, default=TEACHER, metavar="N", help=f"lines of teacher.en ({TEACHER:,})")
    parser.add_argument("--student", type=int, default=STUDENT, metavar="N", help=f"lines of student.en ({STUDENT:,})")
    options = parser.parse_args(arguments)
    if min(options.teacher, options.student) < 1:
        parser.error(f"--teacher is {options.teacher} and --student {options.student}; give 1 or more of each")

    def work(console: Console) -> None:
        corpus, out = options.corpus, options.out
        english = sentences(lines_with_origins(corpus, "mono.en"))
        needed = options.teacher + options.student
        if len(english) < needed:
            raise CorpusError(
                f"{corpus} has {len(english):,} sentences to choose; {needed:,} are needed. "
                "Lower --teacher or --student"
            )
        kept = pairs(read_pair(ParallelText(source=corpus / "pairs.en", target=corpus / "pairs.pt")))
        if len(kept) <= VALIDATION:
            raise CorpusError(
                f"{corpus} has {len(kept):,} pairs of sentences; more than {VALIDATION} are needed, "
                f"of which {VALIDATION} are to validate with. Build it of more sources"
            )
        write_lines(out / "teacher.en", english[: options.teacher])
        write_lines(out / "student.en", english[options.teacher : needed])
        for side, language in enumerate(("en", "pt")):
            write_lines(out / f"valid.{language}", [pair[side] for pair in kept[:VALIDATION]])
            write_lines(out / f"train.{language}", [pair[side] for pair in kept[VALIDATION:]])
        console.print(f"{out} is ready: {needed:,} sentences, {len(kept):,} pairs", highlight=False, soft_wrap=True)

    return run(work)


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


if __name__ == "__main__":
    sys.exit(main())
