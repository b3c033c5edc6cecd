"""Where the sentences of a text begin and end."""

import re
from collections.abc import Callable, Iterator

ABBREVIATIONS = re.compile(
    r"""(?<!\w)(?:
        p\.\ ?ex|pp?|pág|págs|fl|fls|vol|cap|caps|art|arts|inc|n|nº|núm|no|nr|sr|sra|dr|dra|prof|eng|av|r|fig|figs|eq|
        sec|cf|ca|approx|vs|e\.g|i\.e|al|
        jan|fev|mar|abr|mai|jun|jul|ago|set|out|nov|dez|feb|apr|may|aug|sept?|oct|dec
    )\.\ *$""",
    re.IGNORECASE | re.VERBOSE,
)
"""After these a sentence goes on where the next word is small, or a number. sentencex knows few of Portuguese."""
LONGEST_ABBREVIATION = 16
BREAKS = (re.compile(r"[;:؛]\s+|[；：]\s*"), re.compile(r"[,،]\s+|[，、]\s*"), re.compile(r"\s+"))
"""Where a sentence that is too long is divided, the best places first. Chinese and Japanese have no spaces."""

Range = tuple[int, int]
"""Of characters: the first, and the place after the last."""


def sentences(text: str, language: str) -> list[Range]:
    """Of every sentence, without the white space around it.

    language: BCP-47 code; of one that has no rules, those of a language near it, in the end of English
    """
    from sentencex import get_sentence_boundaries  # not before: most servers are asked for single sentences only

    found: list[Range] = []
    for boundary in get_sentence_boundaries(language.split("-")[0], text):
        begin, end = boundary["start_index"], boundary["end_index"]
        if found and _goes_on(text, begin, end):
            begin = found.pop()[0]
        found.append((begin, end))
    trimmed = (_trimmed(text, *one) for one in found)
    return [(begin, end) for begin, end in trimmed if begin < end]


def divided(text: str, span: Range, fits: Callable[[str], bool]) -> Iterator[Range]:
    """A sentence in pieces that a model takes, without the white space between them.

    One that has no place to divide it at is given as it is, for the model to refuse.
    """
    begin, end = span
    place = None if fits(text[begin:end]) else _middle_break(text, begin, end)
    if place is None:
        yield span
        return
    for half in (_trimmed(text, begin, place), _trimmed(text, place, end)):
        yield from divided(text, half, fits)


def _goes_on(text: str, begin: int, end: int) -> bool:
    """Whether what was taken for the end of a sentence is that of an abbreviation."""
    first = text[begin:end].lstrip()[:1]
    known = ABBREVIATIONS.search(text, max(0, begin - LONGEST_ABBREVIATION), begin)
    return known is not None and (first.islower() or first.isdigit())


def _middle_break(text: str, begin: int, end: int) -> int | None:
    """The place nearest to the middle, of the best kind that there is."""
    middle = (begin + end) / 2
    for pattern in BREAKS:
        places = [match.end() for match in pattern.finditer(text, begin, end) if begin < match.end() < end]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return None


def _trimmed(text: str, begin: int, end: int) -> Range:
    piece = text[begin:end]
    return begin + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
