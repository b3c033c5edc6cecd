"""Each text once, however often it comes: what is translated, and what is under way in windows that are not done."""

import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dragoman.bulk.memory import Memory
from dragoman.errors import DragomanError

MOST_BYTES = 128 * 2**20
"""Of texts and translations that are kept: a quarter of a million sentences, or so."""
ENTRY_BYTES = 200
"""What one takes beside its two strings."""

Outcome = str | DragomanError
"""A translation, or why there is none."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The texts of a window."""

    outcomes: dict[str, Outcome]
    """Of what is known; once the window is done, of every text."""
    waiting: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    """Texts that a window before this one has translated, and where it is going to put what becomes of them."""
    new: list[str] = field(default_factory=list)
    """What is to be translated, the longest first."""


class Once:
    """What a run knows, before the memory. Windows are done in the order in which they asked."""

    def __init__(self, memory: Memory, most_bytes: int = MOST_BYTES) -> None:
        """most_bytes: beyond them it forgets what was not used for the longest time."""
        self._memory, self._most_bytes, self._bytes = memory, most_bytes, 0
        self._kept = OrderedDict[str, str]()
        self._under_way = dict[str, dict[str, Outcome]]()

    def ask(self, texts: Iterable[str]) -> Asked:
        """`texts`: of a window, each once. Raises BulkError where the memory fails."""
        kept, waiting, others = dict[str, Outcome](), dict[str, dict[str, Outcome]](), list[str]()
        for text in texts:
            if text in self._kept:
                kept[text] = self._kept[text]
                self._kept.move_to_end(text)
            elif text in self._under_way:
                waiting[text] = self._under_way[text]
            else:
                others.append(text)
        kept |= self._memory.find(others)
        asked = Asked(kept, waiting, sorted((text for text in others if text not in kept), key=len, reverse=True))
        self._under_way |= dict.fromkeys(asked.new, asked.outcomes)
        return asked

    def answer(self, asked: Asked, outcomes: Sequence[Outcome]) -> Mapping[str, Outcome]:
        """`outcomes`: of what was new. Gives those of every text of the window. Raises BulkError as `ask` does."""
        found = dict(zip(asked.new, outcomes, strict=True))
        asked.outcomes.update(found)  # windows that wait for some of them look here
        for text in asked.new:
            del self._under_way[text]
        translations = {text: outcome for text, outcome in found.items() if isinstance(outcome, str)}
        self._memory.keep(translations)
        for text, translation in translations.items():
            self.keep(text, translation)
        asked.outcomes.update({text: there[text] for text, there in asked.waiting.items()})
        return asked.outcomes

    def keep(self, text: str, translation: str) -> None:
        """From now on it is known, as long as there is room for it."""
        if text not in self._kept:
            self._bytes += _bytes(text, translation)
            self._kept[text] = translation
        while self._bytes > self._most_bytes:
            self._bytes -= _bytes(*self._kept.popitem(last=False))


def _bytes(text: str, translation: str) -> int:
    return sys.getsizeof(text) + sys.getsizeof(translation) + ENTRY_BYTES
