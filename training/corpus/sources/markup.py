"""Pages of HTML, Mallard and DocBook, whose translations have the same structure."""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

from lxml import etree, html

from training.corpus.errors import CorpusError
from training.corpus.sources.passages import Passage, Reader

BLOCKS = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "dt", "dd", "th", "td", "title", "caption"),
    *("para", "simpara", "term"),
}
"""Elements that hold a paragraph, where they hold no other block."""
LEFT_OUT = {"script", "style", "pre", "screen", "programlisting"}
MIN_RUN = 12
"""Blocks of the same kinds in a row that let us trust two pages to run in parallel there."""
LENGTHS = (0.5, 2.0)
"""Shortest and longest a block may be against its counterpart, where only part of the pages run in parallel."""

Block = tuple[str, str]
"""Element name, text."""


def pages(english: str, portuguese: str, pattern: str, suffixes: tuple[str, str] = ("", "")) -> Reader:
    """Two trees of pages with the same names, but for the suffix.

    english, portuguese: folders, relative to that of all packages.
    """

    def read(root: Path) -> Iterator[Passage]:
        for file in sorted((root / english).rglob(pattern)):
            name = file.relative_to(root / english).as_posix()
            counterpart = root / portuguese / (name.removesuffix(suffixes[0]) + suffixes[1])
            translated = blocks(counterpart) if counterpart.exists() else []
            yield from aligned(file.name, blocks(file), translated)

    return read


def portuguese_pages(folder: str, pattern: str) -> Reader:
    """Pages that have no English original."""

    def read(root: Path) -> Iterator[Passage]:
        for file in sorted((root / folder).rglob(pattern)):
            yield from (Passage(file.name, None, text) for _, text in blocks(file))

    return read


def elements_by_id(english: str, portuguese: str) -> Reader:
    """Two trees of pages in which a paragraph and its translation have the same id."""

    def read(root: Path) -> Iterator[Passage]:
        for file in sorted((root / english).rglob("*.html")):
            name = file.relative_to(root / english)
            ours = _texts_by_id(file)
            theirs = _texts_by_id(root / portuguese / name) if (root / portuguese / name).exists() else {}
            for key in ours | theirs:
                yield Passage(name.as_posix(), ours.get(key), theirs.get(key))

    return read


def blocks(file: Path) -> list[Block]:
    """The paragraphs of a page. Raises CorpusError."""
    return [
        (name, text)
        for element in _root(file).iter()
        if (name := _name(element)) in BLOCKS
        and not any(_name(child) in BLOCKS for child in element.iterdescendants())
        and (text := _text(element))
    ]


def aligned(document: str, ours: list[Block], theirs: list[Block]) -> Iterator[Passage]:
    """Pairs the blocks where both pages have the same kinds of blocks in the same order; the others stand alone."""
    kinds = [name for name, _ in ours], [name for name, _ in theirs]
    if kinds[0] == kinds[1]:
        pairs = {index: index for index in range(len(ours))}
    else:
        runs = difflib.SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks()
        pairs = {
            run.a + offset: run.b + offset
            for run in runs
            if run.size >= MIN_RUN
            for offset in range(run.size)
            if LENGTHS[0] < (len(ours[run.a + offset][1]) + 8) / (len(theirs[run.b + offset][1]) + 8) < LENGTHS[1]
        }
    for index, (_, text) in enumerate(ours):
        yield Passage(document, text, theirs[pairs[index]][1] if index in pairs else None)
    for index in sorted(set(range(len(theirs))) - set(pairs.values())):
        yield Passage(document, None, theirs[index][1])


def _texts_by_id(file: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for element in _root(file).iter("p", "h1", "h2", "h3", "h4", "h5", "h6", "td", "th"):
        key = element.get("id")
        if key and "code" not in (element.get("class") or ""):
            texts.setdefault(key, _text(element))
    return texts


def _root(file: Path) -> etree._Element:
    try:
        if file.suffix in (".page", ".docbook"):
            # DocBook's entities are declared elsewhere: they stay as they are, and cleaning drops their sentences.
            parser = etree.XMLParser(recover=True, resolve_entities=False, no_network=True)
            root = etree.parse(file, parser).getroot()
        else:
            content = file.read_bytes()
            root = html.document_fromstring(content, html.HTMLParser(encoding=_encoding(content)))
    except (OSError, etree.LxmlError) as error:
        raise CorpusError(f"{file} cannot be parsed ({error}); delete its package's folder and run again") from error
    if root is None:
        raise CorpusError(f"{file} has no content; delete its package's folder and run again")
    return root


def _encoding(content: bytes) -> str | None:
    """None: the one that the page declares."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return "utf-8"


def _name(element: etree._Element) -> str:
    """Without its namespace; empty for comments and entities."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _text(element: etree._Element) -> str:
    parts = [element.text or ""]
    for child in element:
        if isinstance(child, etree._Entity):
            parts.append(child.text or "")
        elif _name(child) not in ("", *LEFT_OUT):
            parts.append(_text(child))
        parts.append(child.tail or "")
    return re.sub(r"\s+", " ", "".join(parts)).strip()
