"""What must not be learnt from: the documents and sentences that models are scored with."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from training.corpus.errors import CorpusError

LISTS = ("heldout.en-pt.tsv", "flores-dev.en-pt.tsv")
"""The last two columns are sentences in English and Portuguese."""
DOCUMENT_WORDS = 5
"""Shorter sentences of a held-out document, such as the name of a button, may stand elsewhere."""
OPENING_WORDS = 5
WORD = re.compile(r"[^\W_]+")


def is_held_out(source: str, document: str) -> bool:
    """Whether tests/data/heldout.en-pt.tsv draws on this document."""
    match source:
        case "Wesnoth":
            return document == "wesnoth-sof.mo"  # the campaign "The Sceptre of Fire"
        case "GNOME help":
            return int(hashlib.md5(document.encode()).hexdigest(), 16) % 6 == 0
        case "package descriptions":
            return document.endswith(("00", "80"))  # the md5 of the English description
    return False


def words(sentence: str) -> tuple[str, ...]:
    """What two spellings of a sentence have in common: not case, spaces, punctuation or the form of a character."""
    return tuple(WORD.findall(unicodedata.normalize("NFKC", sentence).casefold()))


class Excluded:
    """A set of sentences. Also has what contains one of them, or spells one differently."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._joined: set[str] = set()
        self._by_opening: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for sentence in sentences:
            found = words(sentence)
            if not found:
                continue
            self._joined.add("".join(found))
            if len(found) >= OPENING_WORDS:
                self._by_opening.setdefault(found[:OPENING_WORDS], set()).add(found)

    def __len__(self) -> int:
        return len(self._joined)

    def __contains__(self, sentence: str) -> bool:
        found = words(sentence)
        return "".join(found) in self._joined or any(
            found[start : start + len(excluded)] == excluded
            for start in range(len(found) - OPENING_WORDS + 1)
            for excluded in self._by_opening.get(found[start : start + OPENING_WORDS], ())
        )


def listed(folder: Path) -> Iterator[str]:
    """The sentences of the lists, both languages. Raises CorpusError."""
    for name in LISTS:
        file = folder / name
        try:
            lines = file.read_text("utf-8").rstrip("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise CorpusError(
                f"{file} cannot be read ({error}); the corpus must not be built without the sentences to leave out"
            ) from error
        for number, line in enumerate(lines, 1):
            columns = line.split("\t")
            if len(columns) < 2:
                raise CorpusError(f"{file}, line {number} has no tab; give a pair of sentences as its last two columns")
            yield from columns[-2:]


def of_documents(sentences: Iterable[str]) -> Iterator[str]:
    """Those of a held-out document that are long enough to be told from a set phrase."""
    return (sentence for sentence in sentences if len(words(sentence)) >= DOCUMENT_WORDS)
