"""Compiled gettext catalogs (.mo): the messages of programs and games."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import polib

from training.corpus.errors import CorpusError
from training.corpus.sources.passages import Passage, Reader

LANGUAGE = re.compile(r"/locale/([^/]+)/LC_MESSAGES/|\b([a-z]{2,3}(?:_[A-Z]{2})?)\.mo$")
ACCELERATOR = re.compile(r"(?<!\w)[_&](?=\w)|(?<=\w)&(?=[a-zà-ü])|\s?\([_&]\w\)")
"""The mark before the letter that chooses a menu entry."""
PARAGRAPHS = re.compile(r"\n\s*\n")


def catalogs(*packages: str) -> Reader:
    """English and Brazilian messages; English ones that only a German catalog has; Portuguese ones of Portugal."""

    def read(root: Path) -> Iterator[Passage]:
        for package in packages:
            for file in sorted((root / package).rglob("*.mo")):
                found = LANGUAGE.search(file.as_posix())
                match found and (found[1] or found[2]):
                    case "pt_BR":
                        yield from messages(file)
                    case "pt" | "pt_PT":
                        yield from (Passage(text.document, None, text.portuguese) for text in messages(file))
                    case "de" | "de_DE":
                        yield from (Passage(text.document, text.english, None) for text in messages(file))

    return read


def messages(file: Path) -> Iterator[Passage]:
    """The translated messages of one catalog, paragraph by paragraph. Raises CorpusError where it is not one."""
    try:
        catalog = polib.mofile(str(file))
    except (OSError, ValueError, struct.error) as error:
        raise CorpusError(
            f"{file} is no gettext catalog ({error}); delete its package's folder and run again"
        ) from error
    for entry in catalog:
        if entry.msgid_plural:
            forms = entry.msgstr_plural
            sides = [(entry.msgid, forms[min(forms)]), (entry.msgid_plural, forms[max(forms)])]
        else:
            sides = [(entry.msgid, entry.msgstr)]
        for english, portuguese in sides:
            yield from _paragraphs(file.name, without_accelerators(english), without_accelerators(portuguese))


def without_accelerators(message: str) -> str:
    """`Save _As` -> `Save As`."""
    return ACCELERATOR.sub("", message)


def _paragraphs(document: str, english: str, portuguese: str) -> Iterator[Passage]:
    sides = PARAGRAPHS.split(english), PARAGRAPHS.split(portuguese)
    if len(sides[0]) != len(sides[1]):
        sides = [english], [portuguese]
    for pair in zip(*sides, strict=True):
        yield Passage(document, *pair)
