"""What a text is made of: what is copied, and what is translated with the tags in it."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

OBJECT = "\ufffc"
"""Stands in the text of a block for what is copied in the middle of a sentence (Unicode's own character for that)."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Comes back as it is."""

    raw: str


@dataclass(frozen=True, slots=True)
class Element:
    """An inline element, such as `<b>...</b>`."""

    opening: str
    closing: str
    begin: int
    """Of the block's characters the first in it."""
    end: int
    """The place after the last in it."""
    once: bool = False
    """It may not be there twice: it goes around the longest of the parts that its words become."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A tag that stands before a character of the block and has nothing in it, such as `<br>`."""

    raw: str
    at: int


@dataclass(frozen=True)
class Block:
    """Text that no sentence crosses the edges of."""

    text: str
    elements: tuple[Element, ...] = ()
    """The outer before the inner."""
    marks: tuple[Mark, ...] = ()
    """In the order of the text."""
    objects: tuple[Copied, ...] = ()
    """Of every OBJECT in the text, what it stands for."""
    escape: Callable[[str], str] | None = None
    """How text is written in the markup that the block is from. None: it is from none, and has no tags."""

    def divided(self, begin: int, end: int) -> bool:
        """Whether tags stand inside of these characters, so that it matters which words they stand at."""
        place = bisect_right(self.places, begin)
        return place < len(self.places) and self.places[place] < end

    @cached_property
    def places(self) -> list[int]:
        """Before which characters tags stand, in order."""
        edges = (edge for element in self.elements for edge in (element.begin, element.end))
        return sorted({*edges, *(mark.at for mark in self.marks)})


Part = Copied | Block
