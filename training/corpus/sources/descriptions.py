"""Descriptions of Debian's packages and their translations (the DDTP), as apt gets them."""

import re
from collections.abc import Iterator
from pathlib import Path

from training.corpus.sources.passages import Passage

FOLDER = "descriptions"
"""Of the lists, one file for each language."""
LANGUAGES = ("en", "pt_BR", "pt")
ITEM = re.compile(r"\s*[-*+•]\s")
BREAK = ""
"""Stands for an empty line."""


def descriptions(root: Path) -> Iterator[Passage]:
    """Each with its Brazilian translation; else with that of Portugal; else alone."""
    english, brazilian, portuguese = (stanzas((root / FOLDER / language).read_text("utf-8")) for language in LANGUAGES)
    for key, text in english.items():
        translation = brazilian.get(key) or portuguese.get(key)
        yield from aligned(key, text, translation) if translation else alone(key, text)


def stanzas(text: str) -> dict[str, str]:
    """md5 of the English description -> synopsis, new line, indented description."""
    found = {}
    for stanza in text.split("\n\n"):
        key = re.search(r"^Description-md5: (\w+)", stanza, re.MULTILINE)
        description = re.search(r"^Description-(?!md5)\w+: (.*(?:\n .*)*)", stanza, re.MULTILINE)
        if key and description:
            found[key[1]] = description[1]
    return found


def aligned(document: str, english: str, portuguese: str) -> Iterator[Passage]:
    """Paragraph by paragraph where the breaks are in the same places; else the synopsis alone."""
    ours, theirs = paragraphs(english), paragraphs(portuguese)
    if [text == BREAK for text in ours] != [text == BREAK for text in theirs]:
        yield Passage(document, ours[0], theirs[0])
        yield from (Passage(document, text, None) for text in ours[1:])
        return
    for pair in zip(ours, theirs, strict=True):
        yield Passage(document, *pair)


def alone(document: str, english: str) -> Iterator[Passage]:
    yield from (Passage(document, text, None) for text in paragraphs(english))


def paragraphs(description: str) -> list[str]:
    """The synopsis, the paragraphs and list items, and the breaks between them (Debian policy, 5.6.13)."""
    synopsis, *lines = description.split("\n")
    found, current = [synopsis.strip()], list[str]()
    for line in [*(line.removeprefix(" ") for line in lines), "."]:
        text, is_break = line.strip(), line.strip() == "."
        if current and (is_break or ITEM.match(line) or line.startswith(" ")):
            found.append(" ".join(current))
            current = []
        if is_break:
            found.append(BREAK)
        else:
            current.append(text)
    return found[:-1]
