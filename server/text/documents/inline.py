"""Builds blocks that have markup in them."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from server.text.parts import OBJECT, Block, Copied, Element, Mark, Part

OPENS = r"(?:[*_~\[]|<\w++>)"
SOFT = re.compile(f"( ?)({OPENS}*+)\ufdd0([^\ufdd1]*)\ufdd1|{OPENS}++")
"""What stands for a space, between two characters that no text has, and what opens before it. What opens before
something else is found too, in one piece: else the time to look for the rest of it would grow with the square.
"""


class Inline:
    """A block that grows."""

    def __init__(self, escape: Callable[[str], str] = str, once: bool = False) -> None:
        """`escape`: see Block. once: see Element."""
        self._escape, self._once = escape, once
        self.text = ""
        self._elements: list[Element] = []
        self._opened: dict[int, int] = {}
        """Of those that are not closed, how many marks there were before."""
        self._marks: list[Mark] = []
        self._objects: list[Copied] = []

    def say(self, text: str) -> None:
        """Goes on with text."""
        self.text += text.replace(OBJECT, " ")

    def spaced(self, text: str) -> str:
        """The same, without a first space that goes with the mark before it: a model makes one of two around it."""
        last = self._marks[-1] if self._marks else None
        if last is None or last.at != len(self.text) or not (text.startswith(" ") and self.text.endswith(" ")):
            return text
        self._marks[-1] = replace(last, raw=f"{last.raw} ")
        return text[1:]

    def open(self, opening: str) -> int:
        """Begins an element: gives what closes it. One that is never closed is a mark."""
        self._opened[place := len(self._elements)] = len(self._marks)
        self._elements.append(Element(opening, "", len(self.text), len(self.text), self._once))
        return place

    def close(self, place: int, closing: str) -> None:
        """Ends an element. Without a word, it is a mark with all that is in it."""
        element, marks = self._elements[place], self._opened.pop(place)
        if element.begin < len(self.text):
            self._elements[place] = replace(element, closing=closing, end=len(self.text))
        else:
            inside = "".join(mark.raw for mark in self._marks[marks:])
            opened = "".join(self._elements[one].opening for one in [place, *self._unclosed(place)])
            self._marks[marks:] = [Mark(opened + inside + closing, element.begin)]
            del self._elements[place:]

    def _unclosed(self, after: int) -> list[int]:
        """Elements that begin after this one, and can end no more."""
        places = [place for place in self._opened if place > after]
        for place in places:
            del self._opened[place]
        return places

    @contextmanager
    def element(self, opening: str, closing: str) -> Iterator[None]:
        """What is said meanwhile is in it."""
        place = self.open(opening)
        yield
        self.close(place, closing)

    def mark(self, raw: str) -> None:
        """Stands before what follows."""
        self._marks.append(Mark(raw, len(self.text)))

    def soft(self, raw: str) -> None:
        """A line break in the place of a space: `settled` leaves it where the translation has a space there."""
        if self.text and not self.text.endswith(" "):
            self.text += " "
        self.mark(f"\ufdd0{raw}\ufdd1")

    def object(self, raw: str) -> None:
        """Is copied in the middle of a sentence."""
        self.text += OBJECT
        self._objects.append(Copied(raw))

    @property
    def wordless(self) -> bool:
        """There is nothing to translate."""
        return not any(character.isalnum() for character in self.text)

    def part(self, raw: str) -> Part:
        """All of it. `raw`: as it was, which one without a word is."""
        if self.wordless:
            return Copied(raw)
        never = [self._elements[place] for place in self._opened]
        marks = sorted([*self._marks, *(Mark(one.opening, one.begin) for one in never)], key=lambda mark: mark.at)
        elements = tuple(one for place, one in enumerate(self._elements) if place not in self._opened)
        return Block(self.text, elements, tuple(marks), tuple(self._objects), self._escape)


def settled(text: str) -> str:
    """A translation, with the line breaks that were `soft` in it."""
    return SOFT.sub(_settled, text)


def _settled(found: "re.Match[str]") -> str:
    if found[3] is None:
        return found.group()
    return found[3] + found[2] if found[1] else found[2]
