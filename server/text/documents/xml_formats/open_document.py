"""OpenDocument text (.odt; OASIS OpenDocument 1.3, part 3)."""

from collections.abc import Sequence

from server.errors import DocumentBroken
from server.text.documents.document import Document, Languages, Limits
from server.text.documents.inline import Inline
from server.text.documents.xml_formats.archive import Archive
from server.text.documents.xml_formats.tree import Node, Source, between, escaped, filled, units
from server.text.parts import Copied, Part

NAME = "OpenDocument text (odt)"
FILES = ("content.xml", "styles.xml")
MIME_TYPES = (b"application/vnd.oasis.opendocument.text", b"application/vnd.oasis.opendocument.text-template")
TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0 "
PARAGRAPHS = frozenset({TEXT + "p", TEXT + "h"})
SKIPPED = frozenset({TEXT + "tracked-changes"})
"""What was deleted."""
HOLDERS = frozenset(TEXT + name for name in ("span", "a", "meta"))
"""Elements with words in them that are part of the sentence."""
SPACES = frozenset(TEXT + name for name in ("tab", "line-break"))
"""Between them are texts of their own."""
FIELDS = frozenset(
    TEXT + name
    for name in (
        *("page-number", "page-count", "date", "time", "author-name", "chapter", "sequence", "bookmark-ref"),
        *("reference-ref", "note-ref", "title", "file-name", "variable-get", "variable-set", "user-field-get"),
    )
)
"""What the program fills in: it stands in the sentence."""


def open_odt(data: bytes, limits: Limits, languages: Languages) -> Document:
    """See Format."""
    archive = Archive(data, NAME, limits)
    if archive.read("mimetype").strip() not in MIME_TYPES:
        raise DocumentBroken(NAME, "its mimetype is that of another format")
    archive.check()
    names = [name for name in FILES if name in archive.names]
    members: list[list[Part]] = [[] for _ in names]
    for place, name in enumerate(names):
        members[place] = list(_file(Source(archive.read(name), members)))

    def write(texts: Sequence[str]) -> bytes:
        found = list(texts)
        return archive.with_files({name: filled(found[i], found).encode() for i, name in enumerate(names)})

    return Document(members, write)


def _file(source: Source) -> list[Part]:
    parts, at = list[Part](), 0
    for paragraph in units(source.data, NAME, PARAGRAPHS, skipped=SKIPPED):
        parts += [*between(source, at, paragraph.begin), *_paragraph(source, paragraph)]
        at = paragraph.end
    return [*parts, *between(source, at, len(source.data))]


def _paragraph(source: Source, paragraph: Node) -> list[Part]:
    """Its texts: tabs and line breaks outside of other elements part them."""
    parts, run = between(source, paragraph.begin, paragraph.inner), list[Node]()
    for child in paragraph.children:
        if child.name in SPACES:
            parts += [_text(source, run), *between(source, child.begin, child.end)]
            run = []
        else:
            run.append(child)
    return [*parts, _text(source, run), *between(source, paragraph.closing, paragraph.end)]


def _text(source: Source, run: Sequence[Node]) -> Part:
    """What stands between two tabs. Without a word, paragraphs in it are texts of their own all the same."""
    if not any(map(_has_words, run)):
        return Copied("".join(_outer(source, node) for node in run))
    inline = Inline(escaped)
    for node in run:
        _take(source, inline, node)
    return inline.part("")


def _has_words(node: Node) -> bool:
    """Whether it says any in its paragraph. What is nested is not looked at: it would be in every paragraph around."""
    inside = any(map(_has_words, node.children)) if node.name in HOLDERS else False
    return inside or any(character.isalnum() for character in node.text)


def _take(source: Source, inline: Inline, node: Node) -> None:
    if not node.name:
        inline.say(node.text) if node.text else inline.mark(source.raw(node.begin, node.end))
    elif node.name in HOLDERS and node.children:
        with inline.element(source.raw(node.begin, node.inner), source.raw(node.closing, node.end)):
            for child in node.children:
                _take(source, inline, child)
    elif node.name in FIELDS:
        inline.object(source.raw(node.begin, node.end))
    else:
        inline.mark(_outer(source, node))


def _outer(source: Source, node: Node) -> str:
    """A node as it is, but that paragraphs in it, such as those of a note, are texts of their own."""
    if node.name in PARAGRAPHS:
        return source.nested(_paragraph(source, node))
    if not any(one.name in PARAGRAPHS for one in node.within()):
        return source.raw(node.begin, node.end)
    inside = "".join(_outer(source, child) for child in node.children)
    return source.raw(node.begin, node.inner) + inside + source.raw(node.closing, node.end)
