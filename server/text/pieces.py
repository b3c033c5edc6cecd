"""A block in pieces: sentences that a model is asked for, and what stands between them."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from server.text.parts import OBJECT, Block
from server.text.placed import UNSPACED, Word, words_of
from server.text.protected import Glossary, Protected, Wording, protected, worded
from server.text.sentences import Range, divided, sentences
from server.translation.targets import TargetText

WIDE = re.compile(r"[\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff60]")
"""Chinese and Japanese, and what they write for punctuation: of scripts without spaces, those that have none between
sentences either."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """What needs no model."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Sentence:
    """What a model is asked for: a sentence, or a part of one."""

    block: Block
    span: Range
    held: tuple[Protected, ...]
    """What is not translated in it."""
    wording: Wording
    needs_alignment: bool
    """Tags stand between its words."""

    def words(self, target: TargetText) -> Iterator[Word]:
        """A translation of it that has all placeholders, with what they stand for."""
        names = dict(zip(self.wording.names, self.held, strict=True))
        alignment = target.alignment if self.needs_alignment else None
        for word in words_of(self.wording.content, target.text, alignment, self.wording.origins):
            one = names.get(word.text)
            yield word if one is None else _said(self.block, one)

    def split(self) -> Iterator["Piece"]:
        """Where a placeholder was lost, or all have no room: the parts between what is protected, each for itself."""
        at, end = self.span
        for one in self.held:
            yield from _part(self.block, at, one.begin)
            yield Fixed((_said(self.block, one),))
            at = one.end
        yield from _part(self.block, at, end)


Piece = Fixed | Sentence


def pieces(
    block: Block, language: str, glossary: Glossary, fits: Callable[[str], bool], segmented: bool = True
) -> Iterator[Piece]:
    """All of a block, in order.

    fits: whether a model takes a text. segmented: take it apart into sentences; else it is one
    """
    at = 0
    whole = [(len(block.text) - len(block.text.lstrip()), len(block.text.rstrip()))]
    for span in sentences(block.text, language) if segmented else whole:
        for begin, end in divided(block.text, span, fits) if segmented else [span]:
            yield from _between(block, at, begin)
            piece = _asked(block, begin, end, protected(block.text, begin, end, glossary))
            yield from piece.split() if segmented and _overflows(piece, fits) else [piece]
            at = end
    yield from _between(block, at, len(block.text))


def joined(found: Sequence[Piece], said: Callable[[Piece], Sequence[Word]]) -> tuple[list[Word], list[Range]]:
    """The words of all pieces, and which of them every piece has: the first, and the place after the last.

    A space goes between pieces of a script without spaces, if they now need one, and one between sentences goes if
    they are now of Chinese or Japanese. said: the words of a piece
    """
    words, places = list[Word](), list[Range]()
    of_pieces = [said(piece) for piece in found]
    for place, of_piece in enumerate(of_pieces):
        after = of_pieces[place + 1] if place + 1 < len(of_pieces) else ()
        halves = place > 0 and all(isinstance(one, Sentence) for one in found[place - 1 : place + 1])
        if words and of_piece and _need_space(words[-1], of_piece[0], halves):
            words.append(Word(" ", None))
        first = len(words)
        if not (words and after and _is_needless(words[-1], of_piece, after[0])):
            words += of_piece
        places.append((first, len(words)))
    return words, places


def _need_space(before: Word, after: Word, halves: bool) -> bool:
    """halves: two sentences, or parts of one, that nothing stood between."""
    if before.raw or after.raw or not after.text[:1].isalnum() or UNSPACED.match(after.text):
        return False
    last = before.text[-1:]
    return last in (".", "!", "?", ",", ";") or (halves and last.isalnum() and not UNSPACED.match(last))


def _is_needless(before: Word, between: Sequence[Word], after: Word) -> bool:
    """Whether a space stands between two characters of Chinese or Japanese, punctuation included."""
    spaces = "".join(word.text for word in between) == " "
    return spaces and all(WIDE.match(one) is not None for one in (before.text[-1:], after.text[:1]))


def _asked(block: Block, begin: int, end: int, held: Sequence[Protected]) -> Piece:
    """A sentence; one without a word beside what is protected is fixed."""
    wording = worded(block.text, begin, end, held)
    gaps = zip([begin, *(one.end for one in held)], [*(one.begin for one in held), end], strict=True)
    if not any(character.isalnum() for gap in gaps for character in block.text[slice(*gap)]):
        return Fixed(tuple(_as_it_is(block, begin, end, held)))
    return Sentence(block, (begin, end), tuple(held), wording, block.divided(begin, end))


def _overflows(piece: Piece, fits: Callable[[str], bool]) -> TypeGuard[Sentence]:
    """Whether its placeholders, which are longer than an emoji, make it more than a model takes."""
    return isinstance(piece, Sentence) and bool(piece.held) and not fits(piece.wording.content)


def _part(block: Block, begin: int, end: int) -> Iterator[Piece]:
    """Text with nothing protected in it, and the space around it."""
    text = block.text[begin:end]
    first, last = begin + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
    if first >= last or not any(character.isalnum() for character in text):
        yield from _between(block, begin, end)
        return
    yield from _between(block, begin, first)
    yield _asked(block, first, last, ())
    yield from _between(block, last, end)


def _between(block: Block, begin: int, end: int) -> Iterator[Fixed]:
    if begin < end:
        yield Fixed((Word(block.text[begin:end], begin),))


def _as_it_is(block: Block, begin: int, end: int, held: Sequence[Protected]) -> Iterator[Word]:
    for one in held:
        yield from (word for piece in _between(block, begin, one.begin) for word in piece.words)
        yield _said(block, one)
        begin = one.end
    yield from (word for piece in _between(block, begin, end) for word in piece.words)


def _said(block: Block, one: Protected) -> Word:
    if one.said == OBJECT and block.objects:
        return Word(block.objects[block.text.count(OBJECT, 0, one.begin)].raw, one.begin, raw=True)
    return Word(one.said, one.begin)
