"""The tags of a block, put around the words of its translation that come from the words they stood around."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from server.text.parts import Block, Element
from server.translation.targets import Alignment

WORDS = re.compile(r"Q\d+(?!\w)|\w+(?:['’.-](?!Q\d)\w+)*|\s+|[^\w\s]")
"""A placeholder, a word, white space, or a single other character: tags stand between these."""
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""A script that is written without spaces. There a token is a word."""


SURE = 0.6
"""Of the share of a neighbour that comes from the same source token: what has less comes from nowhere in particular."""

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
    looks: tuple[tuple[int, float], ...] = ()
    """The words of the block that it comes from at all: where they begin, and how much of it does."""


def words_of(content: str, target: str, alignment: Alignment | None, origins: Sequence[int]) -> Iterator[Word]:
    """The translation of a content in words. Without an alignment, all of them come from where it begins.

    origins: of every character of the content, where it stands in the block
    """
    if alignment is None:
        yield from (Word(match.group(), origins[0]) for match in WORDS.finditer(target))
        return
    linked = [*_linked(content, target, alignment)]
    for place, one in enumerate(linked):
        beside = [other for other in linked[max(0, place - 2) : place + 3] if other.source == one.source]
        looks = tuple((origins[source], share) for source, share in one.looks)
        if one.source is None or not one.is_of(beside):
            yield Word(one.text, None, looks=looks)
        elif one.copied and not one.text.startswith("Q"):
            # Tags may stand inside of it, as in H<sub>2</sub>O.
            yield from (Word(character, origins[one.source + at]) for at, character in enumerate(one.text))
        else:
            yield Word(one.text, origins[one.source], looks=looks)


@dataclass(frozen=True, slots=True)
class _Linked:
    """A word of a target with the word of the content that it comes from most."""

    text: str
    source: int | None = None
    """Where that begins."""
    share: float = 0.0
    """How much of it does."""
    copied: bool = False
    """It is the same word."""
    odd: bool = False
    """It is punctuation, and that is a word."""
    looks: tuple[tuple[int, float], ...] = ()
    """All words of the content that it comes from: where they begin, and the share of each."""

    def is_of(self, beside: Sequence["_Linked"]) -> bool:
        """Whether it is its translation, alone or with words beside it that come from the same one.

        What comes along with a translation, such as an article or a comma, is linked to its source too, more weakly.
        """
        if any(other.copied for other in beside):
            return self.copied
        return not self.odd and self.share >= SURE * max(other.share for other in beside)


def _linked(content: str, target: str, alignment: Alignment) -> Iterator[_Linked]:
    sources = [*_cut(content, sorted(begin for begin, _ in alignment.source_spans))]
    texts, shares = _shares(target, alignment, [begin for begin, _ in sources])
    taken = defaultdict[int, float](float)
    for of_word in shares:
        for source, share in of_word.items():
            taken[source] += share
    for text, of_word in zip(texts, shares, strict=True):
        if not of_word:
            yield _Linked(text)
            continue
        # A noun looks at its adjective too, which another word translates. So what counts is the share both ways.
        best = max(of_word, key=lambda source: (of_word[source] ** 2 / taken[source], -source))
        word = content[slice(*sources[best])]
        odd = word[0].isalnum() and not text[0].isalnum()
        looks = tuple((sources[source][0], share) for source, share in of_word.items())
        yield _Linked(text, sources[best][0], of_word[best], text == word, odd, looks)


def _shares(target: str, alignment: Alignment, firsts: Sequence[int]) -> tuple[list[str], list[dict[int, float]]]:
    """The words of a target, and how much of each comes from which word of the content.

    firsts: where the words of the content begin
    """
    spans, weights = alignment.target_spans, defaultdict[int, list[tuple[int, float]]](list)
    for link in alignment.links:
        weights[link.target].append((link.source, link.weight))
    ordered = sorted(range(len(spans)), key=lambda token: spans[token])
    begins = [spans[token][0] for token in ordered]
    texts, found = list[str](), list[dict[int, float]]()
    for begin, end in _cut(target, begins):
        inside = ordered[max(0, bisect_left(begins, begin) - 1) : bisect_left(begins, end)]
        shares = defaultdict[int, float](float)
        for token in (token for token in inside if spans[token][1] > begin):
            for source, weight in weights[token]:
                shares[bisect_right(firsts, alignment.source_spans[source][0]) - 1] += weight / len(inside)
        texts.append(target[begin:end])
        found.append(shares)
    return texts, found


def marked_up(block: Block, words: Sequence[Word]) -> str:
    """The words, with the block's tags: every one of them once or more, nested well."""
    if block.escape is None:
        return "".join(word.text for word in words)
    stacks = _stacks(block, words)
    _give_to_the_nearest(block, words, stacks)
    within = defaultdict[int, list[int]](list)
    for index, stack in enumerate(stacks):
        for element in stack:
            within[id(element)].append(index)
    for element in (element for element in block.elements if element.once):
        _keep_longest(element, within[id(element)], stacks)
    inserted = _insertions(block, words, stacks)
    written, opened = list[str](), Stack()
    for index, (word, stack) in enumerate(zip(words, stacks, strict=True)):
        kept = len(_shared(opened, stack))
        written += [element.closing for element in reversed(opened[kept:])]
        written += [element.opening for element in stack[kept:]]
        opened = stack
        written += [*inserted[index], word.text if word.raw else block.escape(word.text)]
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


def _keep_longest(element: Element, words: Sequence[int], stacks: list[Stack]) -> None:
    """Takes the element from all its words but those of its longest part."""
    parts = [*_parts(element, words, stacks)]
    longest = max(parts, key=len, default=[])
    for index in (index for part in parts if part is not longest for index in part):
        stacks[index] = tuple(one for one in stacks[index] if one is not element)


def _parts(element: Element, words: Sequence[int], stacks: Sequence[Stack]) -> Iterator[list[int]]:
    """The words of an element, parted where it ends and begins again."""

    def part_of(place: int) -> tuple[int, Stack]:
        stack = stacks[words[place]]
        return words[place] - place, stack[: stack.index(element)]

    for _, places in groupby(range(len(words)), part_of):
        yield [words[place] for place in places]


def _give_to_the_nearest(block: Block, words: Sequence[Word], stacks: list[Stack]) -> None:
    """Puts an element that no word is in around the word that looks most at what is in it, if one looks there."""
    order = {id(element): place for place, element in enumerate(block.elements)}
    present = {id(element) for stack in stacks for element in stack}
    looks = sorted((at, i, share) for i, word in enumerate(words) if word.text.isalnum() for at, share in word.looks)
    for element in (element for element in block.elements if id(element) not in present):
        shares = defaultdict[int, float](float)
        for _, index, share in looks[bisect_left(looks, (element.begin,)) : bisect_left(looks, (element.end,))]:
            shares[index] += share
        if shares:
            best = max(shares, key=shares.__getitem__)
            stacks[best] = tuple(sorted((*stacks[best], element), key=lambda one: order[id(one)]))


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
