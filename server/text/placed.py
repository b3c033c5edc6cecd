"""The tags of a block, put around the words of its translation that come from the words they stood around."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import takewhile

from server.text.parts import Block, Element
from server.translation.targets import Alignment

WORDS = re.compile(r"Q\d+(?!\w)|\w+(?:['’.-](?!Q\d)\w+)*|\s+|[^\w\s]")
"""A placeholder, a word, white space, or a single other character: tags stand between these."""
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""A script that is written without spaces. There a token is a word."""


Stack = tuple[Element, ...]
"""Elements around a word, the outermost first."""


@dataclass(frozen=True, slots=True)
class Word:
    """A part of a target."""

    text: str
    origin: int | None
    """The character of the block where the source token begins that it comes from most. None: that is not known."""
    raw: bool = False
    """It is markup, or what an OBJECT stood for."""


def words_of(target: str, alignment: Alignment | None, origins: Sequence[int]) -> Iterator[Word]:
    """A translation in words. Without an alignment, all of them come from where the source begins.

    origins: of every character of the source, where it stands in the block
    """
    if alignment is None:
        yield from (Word(match.group(), origins[0]) for match in WORDS.finditer(target))
        return
    spans, weights = alignment.target_spans, defaultdict[int, list[tuple[int, float]]](list)
    for link in alignment.links:
        weights[link.target].append((link.source, link.weight))
    ordered = sorted(range(len(spans)), key=lambda token: spans[token])
    begins = [spans[token][0] for token in ordered]
    for begin, end in _cut(target, begins):
        inside = ordered[max(0, bisect_left(begins, begin) - 1) : bisect_left(begins, end)]
        shares = defaultdict[int, float](float)
        for token in inside:
            if spans[token][1] > begin:
                for source, weight in weights[token]:
                    shares[source] += weight
        best = max(shares, key=lambda source: (shares[source], -source), default=None)
        origin = None if best is None else origins[alignment.source_spans[best][0]]
        yield Word(target[begin:end], origin)


def marked_up(block: Block, words: Sequence[Word]) -> str:
    """The words, with the block's tags: every one of them once or more, nested well."""
    if not block.markup:
        return "".join(word.text for word in words)
    stacks = _stacks(block, words)
    inserted = _insertions(block, words, stacks)
    written, opened = list[str](), Stack()
    for index, (word, stack) in enumerate(zip(words, stacks, strict=True)):
        kept = len(_shared(opened, stack))
        written += [element.closing for element in reversed(opened[kept:])]
        written += [element.opening for element in stack[kept:]]
        opened = stack
        written += [*inserted[index], word.text if word.raw else escape(word.text, quote=False)]
    written += [element.closing for element in reversed(opened)]
    return "".join((*written, *inserted[len(words)]))


def _cut(target: str, begins: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The words of a text, in order and without gaps."""
    for match in WORDS.finditer(target):
        begin, end = match.span()
        if UNSPACED.search(target, begin, end):
            for inner in begins[bisect_left(begins, begin + 1) : bisect_left(begins, end)]:
                if inner > begin:
                    yield begin, inner
                    begin = inner
        yield begin, end


def _stacks(block: Block, words: Sequence[Word]) -> list[Stack]:
    """The elements that every word is in. White space, and what comes from nowhere, is in those of both neighbours."""
    places, around = _around(block)
    known = [
        None if word.origin is None or word.text.isspace() else around[bisect_right(places, word.origin)]
        for word in words
    ]
    later, following = Stack(), list[Stack]()
    for stack in reversed(known):
        following.append(later)
        later = later if stack is None else stack
    stacks, before = list[Stack](), Stack()
    for stack, after in zip(known, reversed(following), strict=True):
        before = before if stack is None else stack
        stacks.append(_shared(before, after) if stack is None else stack)
    return stacks


def _around(block: Block) -> tuple[list[int], list[Stack]]:
    """Places in the block where elements begin or end, and the elements before the first and after each of them."""
    places = sorted({edge for element in block.elements for edge in (element.begin, element.end)})
    begins, open_now, around = iter([*block.elements]), Stack(), [Stack()]
    ahead = next(begins, None)
    for place in places:
        open_now = tuple(element for element in open_now if element.end > place)
        while ahead is not None and ahead.begin == place:
            open_now, ahead = (*open_now, ahead), next(begins, None)
        around.append(open_now)
    return places, around


def _shared(one: Stack, other: Stack) -> Stack:
    """The outer elements of both."""
    return tuple(mine for mine, _ in takewhile(lambda pair: pair[0] is pair[1], zip(one, other, strict=False)))


def _insertions(block: Block, words: Sequence[Word], stacks: Sequence[Stack]) -> defaultdict[int, list[str]]:
    """By word, the tags without words of their own: they go before the word that comes from what followed them."""
    present = {id(element) for stack in stacks for element in stack}
    empty = [element for element in block.elements if id(element) not in present]
    lone = [(mark.at, mark.raw) for mark in block.marks]
    lone += [(element.begin, element.opening + element.closing) for element in empty]
    origins = sorted((word.origin, index) for index, word in enumerate(words) if word.origin is not None)
    inserted = defaultdict[int, list[str]](list)
    for at, raw in sorted(lone, key=lambda one: one[0]):
        place = bisect_left(origins, (at, 0))
        inserted[origins[place][1] if place < len(origins) else len(words)].append(raw)
    return inserted
