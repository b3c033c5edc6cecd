"""Which text is good enough to learn from."""

import html
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

MAX_CHARACTERS = 600
MIN_LETTERS = 0.6
"""Smallest share of letters among the characters that are no spaces."""
PAIR_LENGTHS = (0.5, 2.2)
"""Shortest and longest a translation may be against its source, in characters; ten are added to both."""
SENTENCE_LENGTHS = (0.4, 2.5)
"""The same for the sentences of a paragraph, where both sides have as many; eight are added."""
MAX_SLOTS = 3
WORDS = (4, 40)
"""Fewest and most words of a sentence that stands alone."""
MIN_SENTENCE_LETTERS = 0.7
"""Smallest share of letters among its characters."""

TAG = re.compile(r"<[^<>]{1,200}>")
CONTEXT = re.compile(r"^(?:[a-z_ ]{1,30}\^|\?\w+:)")
"""Wesnoth (`female^`) and Freeciv (`?plural:`) put it before a message that is not unique."""
BULLET = re.compile(r"^(?:[-*+•·]|\d{1,2}[.)])\s+")
LETTER = re.compile(r"[^\W\d_]")
SLOT = re.compile(
    r"%(?:\(\w+\))?[-+#0-9.*]*(?:hh|ll|[hlLqjzt])?[diouxXeEfFgGcrsaAnp]|%\d+|%%|\$\{?\w+\}?|\{\w*\}|@\w+@|#\w+#"
)
CODE = re.compile(r"https?://|www\.|\S+@\S+\.\w|[{}\\]|/\w+/\w+|::|==|\w+\(\)|--\w|&[\w.-]+;")
MARKUP = re.compile(r"[<>|_]")
END = re.compile(r"[.!?…][\"”’»)]*$")
BOUNDARY = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"”’»)]))"
    r"(?<!\b[A-Z]\.)(?<!\b(?:Mr|Dr|St|Sr|Jr|vs|cf|No)\.)(?<!\b(?:Mrs|Sra|Dra|i\.e|e\.g)\.)(?<!\bProf\.)"
    r"\s+(?=[\"“„«(¿¡]?[A-ZÀ-ÖØ-Þ])"
)
"""Between two sentences: not after an initial or a title."""


class Rule(NamedTuple):
    """A reason to leave text out."""

    reason: str
    applies: Callable[..., bool]


PAIR_RULES: Sequence[Rule] = (
    Rule("a side is empty, or both are the same", lambda en, pt: not en or not pt or en == pt),
    Rule(f"a side is longer than {MAX_CHARACTERS} characters", lambda en, pt: max(len(en), len(pt)) > MAX_CHARACTERS),
    Rule("a side has fewer than two letters", lambda en, pt: min(_letters(en), _letters(pt)) < 2),
    Rule(f"less than {MIN_LETTERS:.0%} of the source is letters", lambda en, pt: _share(en) < MIN_LETTERS),
    Rule("an address, a path, code or an option", lambda en, pt: bool(CODE.search(en) or CODE.search(pt))),
    Rule(
        f"different slots for values, or more than {MAX_SLOTS}",
        lambda en, pt: sorted(_slots(en)) != sorted(_slots(pt)) or len(_slots(en)) > MAX_SLOTS,
    ),
    Rule("an underscore on one side only", lambda en, pt: ("_" in en) != ("_" in pt)),
    Rule(
        f"lengths do not fit: not {PAIR_LENGTHS[0]} to {PAIR_LENGTHS[1]}",
        lambda en, pt: not PAIR_LENGTHS[0] < (len(pt) + 10) / (len(en) + 10) < PAIR_LENGTHS[1],
    ),
)
"""In this order; the first that applies decides."""

SENTENCE_RULES: Sequence[Rule] = (
    Rule(f"not {WORDS[0]} to {WORDS[1]} words", lambda text: not WORDS[0] <= len(text.split()) <= WORDS[1]),
    Rule("does not end like a sentence", lambda text: not END.search(text)),
    Rule("does not begin like a sentence", lambda text: not re.match(r"[\"“'‘«(¿¡]?[^\W\d_a-zà-ÿ]|\d", text)),
    Rule("an address, a path, code, an option or markup", lambda text: bool(CODE.search(text) or MARKUP.search(text))),
    Rule("a slot for a value", lambda text: any(slot != "%%" for slot in _slots(text))),
    Rule(
        f"less than {MIN_SENTENCE_LETTERS:.0%} letters",
        lambda text: _letters(text) < MIN_SENTENCE_LETTERS * len(text),
    ),
)
"""For text that has no translation."""


def clean(text: str) -> str:
    """Plain text: no tags, entities, bullets, contexts or line breaks; NFC."""
    text = unicodedata.normalize("NFC", html.unescape(text))
    text = TAG.sub(" ", text).replace("\\n", " ").replace("\\t", " ").replace("\ufeff", "").replace("\xad", "")
    text = CONTEXT.sub("", text)
    return BULLET.sub("", " ".join(text.split()))


def sentences(text: str) -> list[str]:
    return BOUNDARY.split(text)


def sentence_pairs(english: str, portuguese: str) -> Iterator[tuple[str, str]]:
    """Sentence by sentence where both sides have as many of fitting lengths; else as a whole."""
    ours, theirs = sentences(english), sentences(portuguese)
    shortest, longest = SENTENCE_LENGTHS
    if len(ours) == len(theirs) and all(
        shortest < (len(b) + 8) / (len(a) + 8) < longest for a, b in zip(ours, theirs, strict=True)
    ):
        yield from zip(ours, theirs, strict=True)
    else:
        yield english, portuguese


def _letters(text: str) -> int:
    return len(LETTER.findall(text))


def _share(text: str) -> float:
    return _letters(text) / max(1, len(text.replace(" ", "")))


def _slots(text: str) -> list[str]:
    return SLOT.findall(text)
