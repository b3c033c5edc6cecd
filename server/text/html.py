"""HTML as parts. No tree is built and nothing repaired: what is not text comes back byte for byte."""

import re
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape, unescape

from server.text.parts import OBJECT, Block, Copied, Element, Mark, Part
from server.text.tags import Kind, Token, tokens

DEEPEST = 64
"""Inline elements inside of each other that are followed. Those in them keep their place, and not their words."""
SPACES = " \t\n\r\f"
SPACE = re.compile(f"[{SPACES}]+")
"""What HTML shows as one space."""
written = partial(escape, quote=False)
"""A text as HTML has it."""


def read_html(html: str) -> list[Part]:
    """HTML in parts. Tags that are never closed, or never opened, stay so."""
    parts, draft = list[Part](), _Draft(html, 0)
    for token in tokens(html):
        if token.kind is Kind.BREAK:
            parts += [*draft.parts(token.begin), Copied(html[token.begin : token.end])]
            draft = _Draft(html, token.end)
        else:
            draft.take(token)
    return [part for part in (*parts, *draft.parts(len(html))) if not isinstance(part, Copied) or part.raw]


@dataclass(slots=True)
class _Open:
    """An inline element that was not closed so far."""

    name: str
    opening: str
    begin: int
    marks: int
    """How many there were before it."""
    order: int


@dataclass(slots=True)
class _Draft:
    """A block that grows."""

    html: str
    start: int
    """Where it begins in the whole text."""
    text: str = ""
    opened: list[_Open] = field(default_factory=list)
    elements: list[tuple[int, Element]] = field(default_factory=list)
    """With the order in which they were opened."""
    marks: list[Mark] = field(default_factory=list)
    objects: list[Copied] = field(default_factory=list)
    order: int = 0
    leading: str = ""
    trailing: str = ""
    """The white space before and after, as it was written, as far as no tag stands beside it."""

    def take(self, token: Token) -> None:
        """Grows by it."""
        raw = self.html[token.begin : token.end]
        if token.kind is Kind.TEXT:
            self._take_text(raw, first=token.begin == self.start)
            return
        self.trailing = ""
        if token.kind is Kind.OPENS and len(self.opened) < DEEPEST:
            self.opened.append(_Open(token.name, raw, len(self.text), len(self.marks), self.order))
            self.order += 1
        elif token.kind is Kind.CLOSES:
            self._close(token.name, raw)
        elif token.kind is Kind.OBJECT:
            self.text += OBJECT
            self.objects.append(Copied(raw))
        else:
            if token.name == "br" and self.text and not self.text.endswith(" "):
                self.text += " "
            self.marks.append(Mark(raw, len(self.text)))

    def parts(self, end: int) -> list[Part]:
        """All of it. One without a word is copied."""
        if not any(character.isalnum() for character in self.text):
            return [Copied(self.html[self.start : end])]
        text = self.text.removesuffix(" ") if self.trailing else self.text
        # What is never closed becomes a mark: its end may be in another block.
        marks = [*self.marks, *(Mark(one.opening, one.begin) for one in self.opened)]
        marks.sort(key=lambda mark: mark.at)
        elements = tuple(element for _, element in sorted(self.elements, key=lambda pair: pair[0]))
        block = Block(text, elements, tuple(marks), tuple(self.objects), written)
        return [Copied(self.leading), block, Copied(self.trailing)]

    def _take_text(self, raw: str, first: bool) -> None:
        if first:
            self.leading = raw[: len(raw) - len(raw.lstrip(SPACES))]
            raw = raw.lstrip(SPACES)
        # A block's own OBJECTs are those of elements.
        text = SPACE.sub(" ", unescape(raw)).replace(OBJECT, " ")
        if self.text.endswith(" ") and text.startswith(" "):
            text = text[1:]
            if self.marks and self.marks[-1].at == len(self.text):  # spaces stand on both sides of it
                self.marks[-1] = replace(self.marks[-1], raw=f"{self.marks[-1].raw} ")
        self.text += text
        self.trailing = raw[len(raw.rstrip(SPACES)) :]

    def _close(self, name: str, raw: str) -> None:
        """One that was not opened here stays where it is. Those inside that were not closed end with it."""
        place = next((i for i in reversed(range(len(self.opened))) if self.opened[i].name == name), None)
        if place is None:
            self.marks.append(Mark(raw, len(self.text)))
            return
        for one in reversed(self.opened[place:]):
            closing = raw if one is self.opened[place] else f"</{one.name}>"
            if one.begin < len(self.text):
                self.elements.append((one.order, Element(one.opening, closing, one.begin, len(self.text))))
            else:
                inside = "".join(mark.raw for mark in self.marks[one.marks :])
                self.marks[one.marks :] = [Mark(one.opening + inside + closing, one.begin)]
        del self.opened[place:]
