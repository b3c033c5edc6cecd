"""Articles of a Wikipedia dump."""

import bz2
import re
from collections.abc import Iterator
from pathlib import Path

import mwparserfromhell
from lxml import etree

from training.corpus.errors import CorpusError
from training.corpus.sources.passages import Passage, Reader

HIDDEN = re.compile(r"<ref[^>]*/>|<ref.*?</ref>|<!--.*?-->|\[\[(?:File|Image|Category):.*?\]\]\n", re.DOTALL)
PROSE = re.compile(r"[\"'“(]?\w")
"""How a paragraph begins that is no list, table, heading or template."""


def articles(folder: str, pattern: str) -> Reader:
    """The paragraphs of all articles."""

    def read(root: Path) -> Iterator[Passage]:
        for file in sorted((root / folder).glob(pattern)):
            for title, text in _pages(file):
                yield from (Passage(title, paragraph, None) for paragraph in paragraphs(text))

    return read


def paragraphs(wikitext: str) -> Iterator[str]:
    """A line of wikitext is a paragraph."""
    text = mwparserfromhell.parse(HIDDEN.sub("", wikitext)).strip_code(normalize=True, collapse=True)
    yield from (line for line in str(text).split("\n") if PROSE.match(line))


def _pages(file: Path) -> Iterator[tuple[str, str]]:
    """The dump may be cut off anywhere: what comes before is read."""
    try:
        content = bz2.decompress(file.read_bytes())
    except (OSError, ValueError) as error:
        raise CorpusError(f"{file} is no bz2 file ({error}); delete its package's folder and run again") from error
    root = etree.fromstring(content, etree.XMLParser(recover=True, huge_tree=True))
    for page in root.iter("{*}page"):
        title, text = page.findtext("{*}title"), page.findtext(".//{*}text")
        if title and text and ":" not in title and not text.lower().startswith("#redirect"):
            yield title, text
