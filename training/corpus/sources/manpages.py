"""Manual pages, translated paragraph by paragraph."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from training.corpus.errors import CorpusError
from training.corpus.sources.passages import Passage, Reader

SECTION = re.compile(r"\.S[HS]\b")
EXAMPLE, EXAMPLE_END = re.compile(r"\.(nf|EX)\b"), re.compile(r"\.(fi|EE)\b")
FONT = re.compile(r"\.(B|I|BI|BR|IR|RB|IB|RI|SM|SB)\b\s*(.*)")
WORDS = re.compile(r'"([^"]*)"|(\S+)')
ESCAPES = (
    (re.compile(r"\\f(?:\[.*?\]|\(..|.)|\\&|\\[%:|^]"), ""),
    (re.compile(r"\\-"), "-"),
    (re.compile(r"\\\((?:lq|rq|dq|[Bb]q)|\\\*[lr]q"), '"'),
    (re.compile(r"\\\((?:aq|cq|oq|ga)"), "'"),
    (re.compile(r"\\\(em"), "—"),
    (re.compile(r"\\\(en"), "–"),
    (re.compile(r"\\\(.."), ""),
    (re.compile(r"\\ "), " "),
    (re.compile(r"\\e"), r"\\"),
)
"""groff's special characters, section by section of groff_char(7)."""


def manual_pages(english: tuple[str, ...], portuguese: tuple[str, ...]) -> Reader:
    """Pages of the English packages, beside those of the same name in the Portuguese ones."""

    def read(root: Path) -> Iterator[Passage]:
        translated = {file.name: file for file in _pages(root, portuguese, "pt_BR/")}
        for file in _pages(root, english, ""):
            theirs = sections(translated[file.name]) if file.name in translated else []
            for index, ours in enumerate(sections(file)):
                counterpart = theirs[index] if index < len(theirs) else []
                sides = counterpart if len(counterpart) == len(ours) else [None] * len(ours)
                yield from (Passage(file.name, *pair) for pair in zip(ours, sides, strict=True))

    return read


def sections(file: Path) -> list[list[str]]:
    """The paragraphs of each section of a page, without its examples. Raises CorpusError."""
    try:
        source = gzip.decompress(file.read_bytes()).decode("utf-8", "replace")
    except (OSError, EOFError) as error:
        raise CorpusError(f"{file} cannot be read ({error}); delete its package's folder and run again") from error
    found: list[list[list[str]]] = [[[]]]
    example = False
    for line in source.split("\n"):
        example = (example or bool(EXAMPLE.match(line))) and not EXAMPLE_END.match(line)
        if example or line.startswith(('.\\"', "'\\\"")):
            continue
        if SECTION.match(line):
            found.append([[]])
        elif (text := _text(line)) is not None:
            found[-1][-1].append(text)
        elif found[-1][-1]:
            found[-1].append([])
    return [[" ".join(lines) for lines in section if lines] for section in found]


def _pages(root: Path, packages: tuple[str, ...], language: str) -> list[Path]:
    """Links stand for pages that have another name."""
    found = (file for package in packages for file in (root / package).glob(f"usr/share/man/{language}man*/*.gz"))
    return sorted(file for file in found if not file.is_symlink())


def _text(line: str) -> str | None:
    """What a line adds to its paragraph; None where it ends the paragraph."""
    font = FONT.match(line)
    if font:
        words = [quoted or bare for quoted, bare in WORDS.findall(font[2])]
        # The two fonts of BR, IR and so on take turns within one word.
        line = ("" if len(font[1]) == 2 and font[1] not in ("SM", "SB") else " ").join(words)
    elif line.startswith((".", "'")) or not line.strip():
        return None
    for escape, replacement in ESCAPES:
        line = escape.sub(replacement, line)
    return line.strip()
