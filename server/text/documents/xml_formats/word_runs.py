"""What stands in a paragraph of a Word document: text in its formats, links, fields, pictures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from server.text.documents.xml_formats.tree import Node, Source, escaped
from server.text.parts import Part

SPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
"""Namespaces: of all programs, and of those that write the strict form."""
PARAGRAPHS = frozenset(f"{space} p" for space in SPACES)
HOLDERS = frozenset({"hyperlink", "ins", "moveTo", "smartTag", "customXml", "bdo", "dir"})
"""Elements with runs in them that are part of the sentence."""
BREAKS = frozenset({"tab", "ptab", "br", "cr"})
DROPPED = frozenset({"proofErr", "lastRenderedPageBreak"})
"""What is true of the source only: its misspellings, and where its pages end."""
DROPPED_FORMATS = frozenset({"lang", "noProof"})
"""The same of a format: the language of its text."""
SPOKEN = frozenset({"oMath", "oMathPara", "fldSimple", "sym"})
"""What stands in the place of a word."""
LINKS = ("HYPERLINK", "TOC")
"""Fields whose result is text. That of others is the program's."""


@dataclass(frozen=True, slots=True)
class Said:
    """Text."""

    style: str
    """Its format: what is in w:rPr."""
    text: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Comes back as it is."""

    raw: str
    spoken: bool = False
    """It stands in the place of a word."""
    field: Literal["", "begin", "separate", "end"] = ""
    """What it is of a field."""
    code: str = ""
    """What it says of one."""


@dataclass(frozen=True, slots=True)
class Break:
    """Parts texts: a tab, or the end of a line or page."""

    raw: str


@dataclass(frozen=True, slots=True)
class Holder:
    """A link, or the like."""

    opening: str
    closing: str
    items: tuple["Item", ...]


Item = Said | Kept | Break | Holder


class Runs:
    """Those of a paragraph."""

    def __init__(self, source: Source, paragraph: Node, read: Callable[[Source, Node], list[Part]]) -> None:
        """`read`: reads a paragraph that is inside of this one, such as that of a text box."""
        self._source, self._read = source, read
        self._prefix = source.tag(paragraph)[:-1]
        self.items = self._fields([*self._items(paragraph.children)])

    def opening(self, style: str) -> str:
        """Of a run of text."""
        return f'{self._run(style)}<{self._prefix}t xml:space="preserve">'

    @property
    def closing(self) -> str:
        return f"</{self._prefix}t></{self._prefix}r>"

    def _run(self, style: str) -> str:
        told = f"<{self._prefix}rPr>{style}</{self._prefix}rPr>" if style else ""
        return f"<{self._prefix}r>{told}"

    def written(self, items: Sequence[Item]) -> str:
        """As they are."""
        return "".join(map(self._written, items))

    def _written(self, item: Item) -> str:
        if isinstance(item, Said):
            return self.opening(item.style) + escaped(item.text) + self.closing
        return item.opening + self.written(item.items) + item.closing if isinstance(item, Holder) else item.raw

    def _items(self, nodes: Sequence[Node]) -> Iterator[Item]:
        for node in nodes:
            name = _name(node)
            if name == "r":
                yield from self._of_run(node)
            elif name == "sdt" and (content := _child(node, "sdtContent")) is not None:
                yield self._holder(node, content)
            elif name in HOLDERS:
                yield self._holder(node, node)
            elif name == "pPr":  # which stands first
                yield Break(self._source.raw(node.begin, node.end))
            elif name not in DROPPED and not node.text.isspace():
                yield Kept(self._outer(node), name in SPOKEN)

    def _fields(self, items: list[Item]) -> list[Item]:
        """With every field as one item, but those whose result is text: of these all but the result is kept.

        A field that begins or ends in another paragraph is as if its result were text.
        """
        found, at, ends = list[Item](), 0, _ends_of_fields(items)
        while at < len(items):
            end = ends.get(at)
            if end is None or _code(items[at:end]).startswith(LINKS):
                found.append(items[at])
            else:
                found.append(Kept(self.written(items[at : end + 1]), spoken=True))
                at = end
            at += 1
        return found

    def _holder(self, node: Node, content: Node) -> Holder:
        """Tabs and line breaks in it do not part it."""
        raw = self._source.raw
        inside = (Kept(one.raw) if isinstance(one, Break) else one for one in self._items(content.children))
        items = tuple(self._fields([*inside]))
        return Holder(raw(node.begin, content.inner), raw(content.closing, node.end), items)

    def _of_run(self, run: Node) -> Iterator[Item]:
        style = "".join(
            self._source.raw(one.begin, one.end)
            for one in getattr(_child(run, "rPr"), "children", ())
            if _name(one) not in DROPPED_FORMATS and one.name
        )
        for node in run.children:
            name = _name(node)
            if name == "t":
                yield Said(style, node.all_text())
            elif node.name and name not in DROPPED and name != "rPr":
                raw = f"{self._run(style)}{self._outer(node)}</{self._prefix}r>"
                if name == "fldChar":
                    yield Kept(raw, field=_attribute(node, "fldCharType"))  # type: ignore[arg-type]  # as the schema has
                elif name == "instrText":
                    yield Kept(raw, code=node.all_text())
                else:
                    yield Break(raw) if name in BREAKS else Kept(raw, name in SPOKEN)

    def _outer(self, node: Node) -> str:
        """A node as it is, but that paragraphs in it, such as those of a text box, are texts of their own."""
        raw = self._source.raw
        if node.name in PARAGRAPHS:
            return self._source.nested(self._read(self._source, node))
        if not any(one.name in PARAGRAPHS for one in node.within()):
            return raw(node.begin, node.end)
        return raw(node.begin, node.inner) + "".join(map(self._outer, node.children)) + raw(node.closing, node.end)


def _ends_of_fields(items: Sequence[Item]) -> Mapping[int, int]:
    """Where those that begin and end among these items end, by where they begin."""
    ends, opened = dict[int, int](), list[int]()
    for place, item in enumerate(items):
        kind = getattr(item, "field", "")
        if kind == "begin":
            opened.append(place)
        elif kind == "end" and opened:
            ends[opened.pop()] = place
    return ends


def _code(items: Sequence[Item]) -> str:
    return "".join(one.code for one in items if isinstance(one, Kept)).strip()


def _name(node: Node) -> str:
    """Without its namespace, which is Word's or, of formulas, another one of Office."""
    return node.name.rpartition(" ")[2]


def _child(node: Node, name: str) -> Node | None:
    return next((one for one in node.children if _name(one) == name), None)


def _attribute(node: Node, name: str) -> str:
    return next((value for key, value in node.attributes.items() if key.rpartition(" ")[2] == name), "")
