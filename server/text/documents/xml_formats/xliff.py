"""XLIFF 1.2 and 2.0 (OASIS): segments get a target where they have none."""

from collections.abc import Iterator, Sequence

from server.errors import DocumentBroken
from server.text.documents.document import Document, Languages, Limits
from server.text.documents.inline import Inline
from server.text.documents.xml_formats.tree import Node, Source, between, escaped, filled, units
from server.text.parts import Copied, Part

NAME = "XLIFF"
OLD, NEW = "urn:oasis:names:tc:xliff:document:1.2 ", "urn:oasis:names:tc:xliff:document:2.0 "
HEADS = frozenset({OLD + "file", NEW + "xliff"})
"""Elements that name the target language, and by which attribute."""
UNITS = frozenset({OLD + "trans-unit", NEW + "unit"})
HOLDERS = frozenset({"g", "pc", "mrk"})
"""Inline elements with words in them."""
SPOKEN = frozenset({"x", "ph", "it", "cp"})
"""Those that may stand in the place of a word."""


def open_xliff(data: bytes, limits: Limits, languages: Languages) -> Document:
    """See Format."""
    members: list[list[Part]] = [[]]
    source, parts, at, known = Source(data, members), list[Part](), 0, False
    for node in units(data, NAME, UNITS, tags=HEADS):
        known = True
        parts += between(source, at, node.begin)
        parts += _unit(source, node) if node.name in UNITS else [Copied(_head(source, node, languages))]
        at = node.end
    if not known:
        raise DocumentBroken(NAME, "it has no file of XLIFF 1.2 and is no XLIFF 2.0")
    members[0] = [*parts, *between(source, at, len(data))]

    def write(texts: Sequence[str]) -> bytes:
        return filled(texts[0], list(texts)).encode()

    return Document(members, write)


def _head(source: Source, node: Node, languages: Languages) -> str:
    """The start tag, with the language of the targets."""
    raw, name = source.raw(node.begin, node.inner), "trgLang" if node.name.startswith(NEW) else "target-language"
    if name in node.attributes or not languages.target:
        return raw
    end = raw.rindex("/>" if raw.endswith("/>") else ">")
    return f'{raw[:end]} {name}="{escaped(languages.target)}"{raw[end:]}'


def _unit(source: Source, unit: Node) -> Iterator[Part]:
    at = unit.begin
    for holder in [unit] if unit.name.startswith(OLD) else [one for one in unit.children if _is(one, "segment")]:
        target = next((one for one in holder.children if _is(one, "target")), None)
        for place, node in enumerate(holder.children):
            if not _is(node, "source") or "no" in (unit.attributes.get("translate"), node.attributes.get("translate")):
                continue
            if target is not None and target.all_text().strip():
                continue
            text = _text(source, node)
            if isinstance(text, Copied):
                continue
            if target is None:
                name, before = source.tag(node).removesuffix("source"), holder.children[place - 1] if place else None
                space = before.text if before is not None and before.text.isspace() else ""
                yield from between(source, at, node.end)
                yield from (Copied(f"{space}<{name}target>"), text, Copied(f"</{name}target>"))
                at = node.end
            else:
                opening = source.raw(target.begin, target.inner).removesuffix("/>").removesuffix(">").rstrip()
                yield from between(source, at, target.begin)
                yield from (Copied(f"{opening}>"), text, Copied(f"</{source.tag(target)}>"))
                at = target.end
    yield from between(source, at, unit.end)


def _text(source: Source, node: Node) -> Part:
    inline = Inline(escaped, once=True)
    for child in node.children:
        _take(source, inline, child)
    return inline.part("")


def _take(source: Source, inline: Inline, node: Node) -> None:
    raw, name = source.raw(node.begin, node.end), node.name.rpartition(" ")[2]
    if not node.name:
        inline.say(node.text) if node.text else inline.mark(raw)
    elif name in HOLDERS and node.attributes.get("translate") != "no":
        with inline.element(source.raw(node.begin, node.inner), source.raw(node.closing, node.end)):
            for child in node.children:
                _take(source, inline, child)
    elif name in SPOKEN or name in HOLDERS:
        inline.object(raw)
    else:
        inline.mark(raw)


def _is(node: Node, name: str) -> bool:
    return node.name in (OLD + name, NEW + name)
