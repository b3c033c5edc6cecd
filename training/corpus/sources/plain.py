"""Texts in one language: books, documents, dictionaries."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from training.corpus.errors import CorpusError
from training.corpus.sources.passages import Passage, Reader

Paragraphs = Callable[[str], Iterable[str]]
"""The paragraphs of a text of some format."""
INLINE = re.compile(r":\w+:`([^`<]*)[^`]*`|\[([^\]]*)\]\([^)]*\)|[*_`]{1,2}(?=\S)|(?<=\S)[*_`]{1,2}")
"""Roles and marks of reStructuredText, links and marks of Markdown."""
EXAMPLE = re.compile(r'"([^"]+)"')
WORDNET = re.compile(r"^(?:\S+ ){4}(\S+?)(?:\((?:a|p|ip)\))? .*? \| (.*)$", re.MULTILINE)
"""A line of its data files: four fields, the first word, for an adjective where it may stand; the gloss (wndb(5WN))."""
BACKQUOTED = re.compile(r"`([^`\n]+)`")
ATTRIBUTION = re.compile(r"\n\s*-- ")
CHARACTERS = re.compile(rb"\x00[\x00-\x05]\x00\x09(....)", re.DOTALL)
"""Head of a string in R's serialisation: flags and type CHARSXP, then its length ("R Internals", 1.1 and 1.8)."""


def files(
    folder: str, pattern: str, paragraphs: Paragraphs, language: Literal["en", "pt"] = "en", leave_out: str = ""
) -> Reader:
    """Every file of a folder, relative to that of all packages.

    leave_out: words, separated by spaces; a path with one of these parts or names is skipped.
    """

    def read(root: Path) -> Iterator[Passage]:
        for file in sorted((root / folder).glob(pattern)):
            if file.is_file() and not {*file.parts, file.suffix} & set(leave_out.split()):
                for text in paragraphs(_read(file)):
                    yield Passage(file.name, text, None) if language == "en" else Passage(file.name, None, text)

    return read


def prose(text: str) -> Iterator[str]:
    """Paragraphs between empty lines, reStructuredText or Markdown; without code, directives and tables."""
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.startswith((" ", "\t", ".. ", "|", "+-", "#", ">")):
            yield INLINE.sub(lambda found: (found[1] or found[2] or "").strip(), paragraph)


def indented(text: str) -> Iterator[str]:
    """Paragraphs of dictionaries, whose entries are indented below their headwords, with {links}."""
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith("   "):
            yield re.sub(r"[{}]", "", re.sub(r"^\s*(?:\d+\.\s+)?(?:<[^>]*>\s*)*", "", paragraph))


def cookies(text: str) -> Iterator[str]:
    """What `fortune` prints, without its author."""
    for cookie in text.split("\n%\n"):
        yield ATTRIBUTION.split(cookie)[0]


def wordnet_examples(text: str) -> Iterator[str]:
    """The example sentences of WordNet's data files; most begin in lower case and have no full stop."""
    for _, gloss in _wordnet(text):
        for example in EXAMPLE.findall(gloss):
            yield _capitalized(example) + ("" if example[-1] in ".!?" else ".")


def wordnet_definitions(text: str) -> Iterator[str]:
    """The definitions of WordNet's data files, made to look like sentences; the first of each also after its word.

    They are here for rare words, which a vocabulary has in several pieces: a model has to learn to spell them.
    """
    for word, gloss in _wordnet(text):
        definitions = [part.strip() for part in EXAMPLE.sub("", gloss).split(";") if part.strip()]
        yield from (f"{_capitalized(definition)}." for definition in definitions)
        yield from (f"{_capitalized(word)}: {definition}." for definition in definitions[:1])


def bilingual_dictionary(text: str) -> Iterator[str]:
    """English sides of a dictionary with lines `deutsch | ... :: English | ...`, some of them sentences."""
    for line in text.split("\n"):
        german, separator, english = line.partition("::")
        if separator and not german.startswith("#"):
            for term in english.split("|"):
                yield re.sub(r"\{.*?\}|\[.*?\]|\(.*?\)|/.*?/", "", term).split(";")[0]


def backquoted(text: str) -> Iterator[str]:
    """The texts of Endless Sky's data files; those with a name to be filled in are left out."""
    yield from (text for text in BACKQUOTED.findall(text) if "<" not in text)


def r_strings(folder: str) -> Reader:
    """Books as packages of R hold them: one string a line, an empty one between paragraphs, compressed."""

    def read(root: Path) -> Iterator[Passage]:
        for file in sorted((root / folder).glob("*.rdb")):
            for value in _inflated(file.read_bytes()):
                lines = [_characters(value, found) for found in CHARACTERS.finditer(value)]
                for paragraph in "\n".join(lines).split("\n\n"):
                    yield Passage(file.name, paragraph, None)

    return read


def _wordnet(text: str) -> Iterator[tuple[str, str]]:
    """First word and gloss of each set of synonyms."""
    for line in WORDNET.finditer(text):
        yield line[1].replace("_", " "), line[2]


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


def _read(file: Path) -> str:
    try:
        content = file.read_bytes()
        return (gzip.decompress(content) if file.suffix in (".gz", ".dz") else content).decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{file} cannot be read ({error}); delete its package's folder and run again") from error


def _characters(value: bytes, head: re.Match[bytes]) -> str:
    return value[head.end() : head.end() + int.from_bytes(head[1], "big")].decode("utf-8", "replace")


def _inflated(content: bytes) -> Iterator[bytes]:
    """The values of an .rdb file, each a length and a zlib stream."""
    position = 0
    while position < len(content):
        stream = zlib.decompressobj()
        try:
            yield stream.decompress(content[position + 4 :])
        except zlib.error as error:
            raise CorpusError(f"the R data is broken at byte {position} ({error})") from error
        position = len(content) - len(stream.unused_data)
