"""What is not translated in the middle of a sentence: a placeholder stands in its place meanwhile."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from server.text.parts import OBJECT

PATTERNS = re.compile(
    r"""
    (?:https?|ftp)://[^\s<>"'“”«»]+[^\s<>"'“”«».,;:!?)\]}]   # a URL, without the punctuation after it
    | \bwww\.[\w-]+(?:\.[\w-]+)+(?:/[^\s<>"'“”«»]*[^\s<>"'“”«».,;:!?)\]}])?
    | \b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+\b                    # an e-mail address
    | `[^`\n]+`                                                # code
    | \{\{[^{}\n]+\}\} | \$\{[^{}\n]+\} | \{[\w.!:]*\}         # {name}, {{ name }}, ${name}, {0}
    | %\(\w+\)[sdif] | %\d+\$[sdif@] | %[sdi@](?!\w)           # %(name)s, %1$s, %s
    | [\U0001F1E6-\U0001F1FF]{2}                               # flags
    | [\u2600-\u27BF\U0001F300-\U0001FAFF][\uFE0F\U0001F3FB-\U0001F3FF]?
      (?:\u200D[\u2600-\u27BF\U0001F300-\U0001FAFF][\uFE0F\U0001F3FB-\U0001F3FF]?)*   # emoji, also joined ones
    """,
    re.VERBOSE,
)

FIRST = 77
"""The number of the first placeholder. Of `Q77` models make `Q77`: 80 of 80 in the place of a name, en-pt on FLORES."""


PLACEHOLDERS, NUMBERS = re.compile(r"(?<!\w)Q\d+(?!\w)"), re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase of a caller's glossary, and what stands for it in the other language."""

    source: str
    target: str | None = None
    """None: it is left as it stands."""
    case_sensitive: bool = False

    @property
    def key(self) -> tuple[str, bool]:
        """Of two with the same one, only one can be meant."""
        return self.source if self.case_sensitive else self.source.casefold(), self.case_sensitive


@dataclass(frozen=True, slots=True)
class Protected:
    """Characters of a block that are copied, or said as a glossary says them."""

    begin: int
    end: int
    said: str
    """What stands for them in the target. Of an OBJECT itself: what it stands for knows the block."""


class Glossary:
    """The terms of a call."""

    def __init__(self, terms: Sequence[Term] = ()) -> None:
        self._terms = {term.key: term for term in terms}
        # The longest of those that begin at one place. A term ends where a word does, if its own end is a word's.
        longest = sorted({term.source for term in terms}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_whole, longest)), re.IGNORECASE) if longest else None

    def find(self, text: str, begin: int, end: int) -> Iterator[Protected]:
        """Its terms in a part of a text, in order."""
        for match in () if self._pattern is None else self._pattern.finditer(text, begin, end):
            found = match.group()
            term = self._terms.get((found, True)) or self._terms.get((found.casefold(), False))
            if term is not None:
                yield Protected(match.start(), match.end(), found if term.target is None else term.target)


def protected(text: str, begin: int, end: int, glossary: Glossary) -> list[Protected]:
    """What is not translated in a part of a text, in order and apart. Terms of the glossary go before the rest."""
    objects = (Protected(at, at + 1, OBJECT) for at in range(begin, end) if text[at] == OBJECT)
    copied = (Protected(found.start(), found.end(), found.group()) for found in PATTERNS.finditer(text, begin, end))
    chosen, taken = list[Protected](), bytearray(end - begin)
    for one in (*objects, *glossary.find(text, begin, end), *copied):
        place = slice(one.begin - begin, one.end - begin)
        if not any(taken[place]):
            taken[place] = b"\1" * (one.end - one.begin)
            chosen.append(one)
    return sorted(chosen, key=lambda one: one.begin)


@dataclass(frozen=True, slots=True)
class Wording:
    """A part of a text with placeholders, as the model gets it."""

    content: str
    names: tuple[str, ...]
    """The placeholders, in order."""
    origins: tuple[int, ...]
    """Of every character of the content the one of the text that it is, or that is protected."""

    def keeps(self, target: str) -> bool:
        """Whether a translation has every placeholder once."""
        found = Counter(PLACEHOLDERS.findall(target))
        return all(found[name] == 1 for name in self.names)


def worded(text: str, begin: int, end: int, held: Iterable[Protected]) -> Wording:
    """Puts placeholders into a part of a text: Q and a number that it does not have."""
    taken = set(NUMBERS.findall(text, begin, end))
    numbers = (number for number in count(FIRST) if str(number) not in taken)
    pieces, origins, names, at = list[str](), list[int](), list[str](), begin
    for one in held:
        name = f"Q{next(numbers)}"
        pieces += text[at : one.begin], name
        origins += [*range(at, one.begin), *[one.begin] * len(name)]
        names.append(name)
        at = one.end
    return Wording("".join((*pieces, text[at:end])), tuple(names), (*origins, *range(at, end)))


def _whole(term: str) -> str:
    """Matches a term as whole words."""
    before, after = (r"(?<!\w)" if term[0].isalnum() else ""), (r"(?!\w)" if term[-1].isalnum() else "")
    return before + re.escape(term) + after
