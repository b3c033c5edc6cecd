"""XML by where it stands: what is not translated is never written anew, so that it comes back byte for byte.

Expat reads it (https://libexpat.github.io). There are no entities but XML's own five, no document types, and nothing is
fetched.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any
from xml.parsers import expat

from server.errors import DocumentBroken, DocumentTooLarge
from server.text.documents.document import decoded
from server.text.parts import Copied, Part

CHUNK = 64 * 1024
DEEPEST = 128
"""Elements inside of each other."""
MOST_NODES = 20_000
"""Of a paragraph."""
NO_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufdd0-\ufdef\ufffe\uffff]")
"""Characters that XML cannot have, or that stand for something here."""
MEMBER = re.compile("\uffff([0-9]+)\uffff")
"""Stands for another member of the document, by its number."""


@dataclass(slots=True, eq=False)
class Node:
    """An element, or with no name a text, a comment or the like. Places are of bytes."""

    name: str
    """In full: its namespace, a space, and its name there."""
    begin: int
    inner: int
    """Where its start tag ends."""
    end: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    children: list["Node"] = field(default_factory=list)
    closing: int = 0
    """Where its end tag begins."""

    def all_text(self) -> str:
        return self.text + "".join(child.all_text() for child in self.children)

    def within(self) -> Iterator["Node"]:
        """All nodes in it, from outside to inside."""
        for child in self.children:
            yield child
            yield from child.within()


def units(
    data: bytes, what: str, names: Collection[str], tags: Collection[str] = (), skipped: Collection[str] = ()
) -> Iterator[Node]:
    """The outermost elements of these names, in order. Raises DocumentBroken or DocumentTooLarge.

    what: the format, for errors. tags: elements around them of which the start tag is given, before them. skipped:
    elements in which nothing is looked for
    """
    decoded(data, what)
    reader = _Reader(what, frozenset(names), frozenset(tags), frozenset(skipped))
    for at in range(0, len(data), CHUNK):
        yield from reader.read(data[at : at + CHUNK])
    for node in reader.read(b"", last=True):
        node.end = node.end or len(data)
        yield node


class _Reader:
    """Makes trees of units, and of nothing else."""

    def __init__(self, what: str, names: frozenset[str], tags: frozenset[str], skipped: frozenset[str]) -> None:
        self._what, self._names, self._tags, self._skipped = what, names, tags, skipped
        self._open: list[Node | None] = []
        """Elements that are not closed. None: outside of a unit."""
        self._skipping = 0
        """How deep inside of what is skipped."""
        self._nodes = 0
        self._last: Node | None = None
        """The node that ends, or whose start tag does, where the next event begins."""
        self._is_tag = False
        """Nothing of it is wanted but its start tag."""
        self._found: list[Node] = []
        self._parser = parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.CommentHandler = parser.DefaultHandler = self._other
        parser.ProcessingInstructionHandler = lambda *_: self._other("")
        parser.StartCdataSectionHandler = parser.EndCdataSectionHandler = self._settle
        parser.XmlDeclHandler = self._declared
        parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = self._refuse

    def read(self, data: bytes, last: bool = False) -> list[Node]:
        """The units that end in it. Raises DocumentBroken."""
        try:
            self._parser.Parse(data, last)
        except expat.ExpatError as error:
            raise DocumentBroken(self._what, str(error)) from error
        except ValueError as error:  # an encoding of several bytes
            raise DocumentBroken(self._what, f"{error}; convert it to UTF-8 first") from error
        done = self._found if last else [node for node in self._found if node.end]
        self._found = [] if last else [node for node in self._found if not node.end]
        return done

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        at = self._settle()
        if len(self._open) >= DEEPEST:
            raise DocumentTooLarge("elements inside of each other", len(self._open) + 1, DEEPEST, "make it simpler")
        parent = self._open[-1] if self._open else None
        if name in self._skipped or self._skipping:
            self._skipping += 1
        node = Node(name, at, at, attributes=attributes)
        if parent is not None:
            parent.children.append(self._counted(node))
        elif self._skipping or name not in self._names:
            if name in self._tags and not self._skipping:
                self._found.append(node)
                self._last, self._is_tag = node, True
            self._open.append(None)
            return
        else:
            self._nodes = 0
        self._open.append(node)
        self._last = node

    def _end(self, name: str) -> None:
        at = self._settle()
        node = self._open.pop()
        self._skipping -= bool(self._skipping)
        if node is None:
            return
        node.closing = at
        self._last = node
        if not self._open or self._open[-1] is None:
            self._found.append(node)

    def _text(self, text: str) -> None:
        self._leaf(text)

    def _other(self, _: str) -> None:
        self._leaf("")

    def _leaf(self, text: str) -> None:
        if text and (last := self._last) is not None and last.text:  # Expat gives a text in pieces
            last.text += text
            return
        at = self._settle()
        if self._open and (parent := self._open[-1]) is not None:
            self._last = self._counted(Node("", at, at, text=text))
            parent.children.append(self._last)

    def _settle(self) -> int:
        """Where this event begins, which is where the one before it ends."""
        at: int = self._parser.CurrentByteIndex
        if (node := self._last) is not None:
            if node.closing or not node.name or self._is_tag:
                node.end = at
            if not node.closing:
                node.inner = at
            self._last, self._is_tag = None, False
        return at

    def _counted(self, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise DocumentTooLarge("elements in a paragraph", self._nodes, MOST_NODES, "make it simpler")
        return node

    def _declared(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() not in ("utf-8", "us-ascii"):
            raise DocumentBroken(self._what, f"its encoding is {encoding}; convert it to UTF-8 first")

    def _refuse(self, *_: Any) -> None:
        raise DocumentBroken(self._what, "it has a document type or entities of its own; take them out")


class Source:
    """An XML file, and the members that its nested paragraphs become."""

    def __init__(self, data: bytes, members: list[list[Part]]) -> None:
        """members: where those go."""
        self.data, self._members = data, members

    def raw(self, begin: int, end: int) -> str:
        """As it is written."""
        return self.data[begin:end].decode()

    def tag(self, node: Node) -> str:
        """The name of an element as it is written, with its prefix."""
        found = re.compile(rb"[^\s/>]+").match(self.data, node.begin + 1)
        assert found is not None
        return found.group().decode()

    def nested(self, parts: list[Part]) -> str:
        """What stands for these parts, which are translated for themselves, until `filled`."""
        self._members.append(parts)
        return f"\uffff{len(self._members) - 1}\uffff"


def filled(text: str, members: list[str]) -> str:
    """A member with those in it that stand in its marks and copies."""
    while MEMBER.search(text):
        text = MEMBER.sub(lambda found: members[int(found[1])], text)
    return text


def escaped(text: str) -> str:
    """A text as XML has it."""
    return escape(NO_XML.sub("", text), quote=False)


def between(source: Source, begin: int, end: int) -> list[Part]:
    """What is copied."""
    return [Copied(source.raw(begin, end))] if begin < end else []
