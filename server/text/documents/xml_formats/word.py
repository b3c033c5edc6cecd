"""Word documents (.docx; ECMA-376, part 1, section 17).

Text stands in runs, each of one format. The format of most characters is the one that the others stand in:

    <w:r><w:t>...</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>...</w:t></w:r><w:r><w:t>...

so that every other run is an element, which begins by closing the run around it and ends by opening that again.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from server.errors import DocumentBroken
from server.text.documents.document import Document, Languages, Limits
from server.text.documents.inline import Inline
from server.text.documents.xml_formats.archive import Archive
from server.text.documents.xml_formats.tree import Node, Source, between, escaped, filled, units
from server.text.documents.xml_formats.word_runs import PARAGRAPHS, Break, Holder, Item, Kept, Runs, Said
from server.text.parts import Copied, Part

NAME = "Word document (docx)"
TYPES = "[Content_Types].xml"
MAIN = ("document.main+xml", "template.main+xml")
TRANSLATED = (*MAIN, "header+xml", "footer+xml", "footnotes+xml", "endnotes+xml", "comments+xml")
"""Ends of the content types of files with text in them."""
OVERRIDE = "http://schemas.openxmlformats.org/package/2006/content-types Override"
EMPTY = re.compile(
    r"<(\w+:)?r>(?:<(?:\w+:)?rPr>(?:(?!</(?:\w+:)?rPr>).)*+</(?:\w+:)?rPr>)?"
    r'<(?:\w+:)?t xml:space="preserve"></(?:\w+:)?t></(?:\w+:)?r>',
    re.DOTALL,
)
"""Runs without text, as elements leave them that touch each other."""
OPENS, OPENS_AGAIN = "\ufdd3", "\ufdd2"
"""Before the opening of a run of text; and in the place of one of the same format as the one before."""
OPENING = re.compile(f'{OPENS}([^{OPENS}]*?t xml:space="preserve">)|{OPENS_AGAIN}')


def open_docx(data: bytes, limits: Limits, languages: Languages) -> Document:
    """See Format."""
    archive = Archive(data, NAME, limits)
    names = list(_files(archive))
    archive.check()
    members: list[list[Part]] = [[] for _ in names]
    for place, name in enumerate(names):
        members[place] = _file(Source(archive.read(name), members))

    def write(texts: Sequence[str]) -> bytes:
        found = list(map(_settled, texts))
        return archive.with_files({name: filled(found[i], found).encode() for i, name in enumerate(names)})

    return Document(members, write)


def _files(archive: Archive) -> Iterator[str]:
    """Those with text in them."""
    types = {
        one.attributes.get("PartName", "").removeprefix("/"): one.attributes.get("ContentType", "")
        for one in units(archive.read(TYPES), NAME, {OVERRIDE})
    }
    if not any(kind.endswith(MAIN) and "wordprocessingml" in kind for kind in types.values()):
        raise DocumentBroken(NAME, "its content types name no document of Word")
    for name, kind in types.items():
        if name in archive.names and "wordprocessingml" in kind and kind.endswith(TRANSLATED):
            yield name


def _file(source: Source) -> list[Part]:
    parts, at = list[Part](), 0
    for paragraph in units(source.data, NAME, PARAGRAPHS):
        parts += [*between(source, at, paragraph.begin), *_paragraph(source, paragraph)]
        at = paragraph.end
    return [*parts, *between(source, at, len(source.data))]


def _paragraph(source: Source, paragraph: Node) -> list[Part]:
    """Its texts: tabs and line breaks outside of links part them."""
    runs = Runs(source, paragraph, _paragraph)
    parts, text = between(source, paragraph.begin, paragraph.inner), list[Item]()
    for item in (*runs.items, Break("")):
        if isinstance(item, Break):
            parts += [*_text(runs, text), Copied(item.raw)]
            text = []
        else:
            text.append(item)
    return [*parts, *between(source, paragraph.closing, paragraph.end)]


def _text(runs: Runs, items: Sequence[Item]) -> list[Part]:
    """What stands between two tabs."""
    inline, style = Inline(escaped), _style(items)
    _take(runs, inline, items, style)
    if inline.wordless:
        return [Copied(runs.written(items))]
    return [Copied(OPENS + runs.opening(style)), inline.part(""), Copied(runs.closing)]


def _take(runs: Runs, inline: Inline, items: Sequence[Item], around: str) -> None:
    """around: the format of the run that these stand in."""
    for style, group in groupby(items, lambda item: item.style if isinstance(item, Said) else None):
        if style is None:
            for item in group:
                _take_other(runs, inline, item, around)
            continue
        text = "".join(item.text for item in group if isinstance(item, Said))
        if style == around:
            inline.say(text)
        else:
            with inline.element(_between(runs, style), _between(runs, around)):
                inline.say(text)


def _take_other(runs: Runs, inline: Inline, item: Item, around: str) -> None:
    if isinstance(item, Holder):
        style = _style(item.items)
        with inline.element(_between(runs, style, item.opening), _between(runs, around, item.closing)):
            _take(runs, inline, item.items, style)
    elif isinstance(item, Kept):
        raw = runs.closing + item.raw + OPENS_AGAIN
        inline.object(raw) if item.spoken else inline.mark(raw)


def _style(items: Sequence[Item]) -> str:
    """The format of most characters."""
    characters = Counter[str]()
    for item in items:
        if isinstance(item, Said):
            characters[item.style] += len(item.text)
    return max(characters, key=characters.__getitem__) if characters else ""


def _between(runs: Runs, style: str, raw: str = "") -> str:
    """Ends a run, and begins one of this format after what is given."""
    return f"{runs.closing}{raw}{OPENS}{runs.opening(style)}"


def _settled(text: str) -> str:
    """With all runs in the format that they stand in now, and none without text."""
    last = ""

    def opened(found: "re.Match[str]") -> str:
        nonlocal last
        last = found[1] or last
        return last

    return EMPTY.sub("", OPENING.sub(opened, text))
