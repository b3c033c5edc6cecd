"""Whole texts: taken apart, translated sentence by sentence, and put together again."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, repeat
from math import fsum

from engine.request import FinishReason, Timings
from models.decoding import Options
from models.tokenizers.tokenizer import NOWHERE
from server.catalog.served_model import ServedModel
from server.errors import HtmlTooLong, TooManyContents
from server.text.html import read_html
from server.text.parts import Block, Copied, Part
from server.text.pieces import Fixed, Piece, Sentence, joined, pieces
from server.text.placed import Word, marked_up
from server.text.plain import read_plain
from server.text.protected import Glossary, Term
from server.text.sentences import Range
from server.translation.answer import Leg, TranslatedSentence, Translation
from server.translation.options import Route, check_route
from server.translation.sharing.waiting import Reuse
from server.translation.sources import INLINE_CHARACTERS
from server.translation.targets import TargetText

MOST_HTML = 256 * 1024
"""Characters of a text in HTML. Python's parser takes time that grows with the square of some malformed texts."""
NO_TIME = Timings(0.0, 0.0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the texts of a call are."""

    html: bool = False
    segmented: bool = True
    """They have several sentences, each of which is translated for itself."""
    glossary: tuple[Term, ...] = ()


Answers = dict[Sentence, Translation]
Parts = list[tuple[Part, list[Piece]]]
"""A text in parts, and its blocks in pieces."""


Ask = Callable[[Sequence[str], Options], Awaitable[list[Translation]]]
"""Translates sentences."""


class Texts:
    """Translates whole texts, with the model that is asked first."""

    def __init__(self, model: ServedModel, source_language: str, fits: Callable[[str], bool], ask: Ask) -> None:
        """`source_language`: may be empty, for the model's only one. fits: whether it takes a text."""
        self._most, self._fits, self._ask_model = model.max_contents, fits, ask
        self._language = check_route(Route(source_language), model, texts_name_target=True).source_language

    async def translate(self, texts: Sequence[str], shape: Shape, options: Options) -> list[Translation]:
        """The texts in the other language, in order; one without a word comes back as it is. Raises ServerError."""
        if len(texts) > self._most:
            raise TooManyContents(len(texts), self._most)
        if shape.html and (longest := max(map(len, texts), default=0)) > MOST_HTML:
            raise HtmlTooLong(f"contents[{[*map(len, texts)].index(longest)}]", longest, MOST_HTML)
        read = read_html if shape.html else read_plain
        of_texts = [await self._take_apart(partial(read, text), len(text), shape) for text in texts]
        of_texts, answers = await self._answer(of_texts, options)
        return [_put_together(parts, answers, shape.html) for parts in of_texts]

    async def translate_parts(
        self, parts: Sequence[Part], glossary: tuple[Term, ...], options: Options
    ) -> tuple[list[str], int]:
        """Every part in the other language, in order, and how many tokens their sentences have. Raises ServerError."""
        size = sum(len(part.text) for part in parts if isinstance(part, Block))
        apart = await self._take_apart(lambda: parts, size, Shape(glossary=glossary))
        [apart], answers = await self._answer([apart], options)
        tokens = sum(answers[one].source_tokens for one in _sentences(apart))
        return [_written(part, found, answers, 0) for part, found in apart], tokens

    async def _answer(self, of_texts: list[Parts], options: Options) -> tuple[list[Parts], Answers]:
        """The translations of all sentences, which are taken apart further where a placeholder was lost."""
        asked = [one for parts in of_texts for one in _sentences(parts)]
        answers = await self._ask(asked, options)
        lost = {one for one in asked if not one.wording.keeps(answers[one].hypotheses[0].text)}
        if lost:
            of_texts = [[(part, list(_split(found, lost))) for part, found in parts] for parts in of_texts]
            asked = [one for parts in of_texts for one in _sentences(parts)]
            answers |= await self._ask([one for one in asked if one not in answers], options)
        return of_texts, answers

    async def _take_apart(self, read: Callable[[], Sequence[Part]], characters: int, shape: Shape) -> Parts:
        take = partial(_taken_apart, read, shape, self._language, self._fits)
        return take() if characters <= INLINE_CHARACTERS else await asyncio.to_thread(take)

    async def _ask(self, sentences: Sequence[Sentence], options: Options) -> Answers:
        """In as many calls of the model as it takes contents at a time."""
        if any(one.needs_alignment for one in sentences):
            options = {**options, "with_alignment": True}
        answers = Answers()
        for first in range(0, len(sentences), self._most):
            window = sentences[first : first + self._most]
            found = await self._ask_model([one.wording.content for one in window], options)
            answers |= dict(zip(window, found, strict=True))
        return answers


def _taken_apart(read: Callable[[], Sequence[Part]], shape: Shape, language: str, fits: Callable[[str], bool]) -> Parts:
    glossary = Glossary(shape.glossary)
    return [
        (part, [] if isinstance(part, Copied) else list(pieces(part, language, glossary, fits, shape.segmented)))
        for part in read()
    ]


def _sentences(parts: Parts) -> Iterator[Sentence]:
    return (one for _, found in parts for one in found if isinstance(one, Sentence))


def _split(found: Sequence[Piece], lost: Collection[Sentence]) -> Iterator[Piece]:
    for one in found:
        if isinstance(one, Sentence) and one in lost:
            yield from one.split()
        else:
            yield one


def _put_together(parts: Parts, answers: Answers, html: bool) -> Translation:
    """The n-th hypothesis has the n-th best translation of every sentence."""
    asked = [answers[one] for one in _sentences(parts)]
    hypotheses = tuple(
        _hypothesis("".join(_written(part, found, answers, rank) for part, found in parts), asked, rank)
        for rank in range(max((len(one.hypotheses) for one in asked), default=1))
    )
    spans = repeat((NOWHERE, NOWHERE)) if html else _placed(parts, answers)
    return Translation(
        hypotheses,
        sum(one.source_tokens for one in asked),
        sum((one.timings for one in asked), NO_TIME),
        asked[0].reuse if len({one.reuse for one in asked}) == 1 else Reuse.NONE,
        legs=tuple(map(_leg, zip(*(one.legs for one in asked), strict=True))),
        seed=asked[0].seed if len({one.seed for one in asked}) == 1 else None,
        guards=tuple(dict.fromkeys(guard for one in asked for guard in one.guards)),
        retried=any(one.retried for one in asked),
        sentences=tuple(
            TranslatedSentence(*span, one.hypotheses[0].score, one.guards)
            for one, span in zip(asked, spans, strict=False)
        ),
    )


def _leg(of_sentences: Sequence[Leg]) -> Leg:
    """Of a whole text, that of all its sentences."""
    timings = sum((one.timings for one in of_sentences), NO_TIME)
    return replace(of_sentences[0], source_tokens=sum(one.source_tokens for one in of_sentences), timings=timings)


def _hypothesis(text: str, asked: Sequence[Translation], rank: int) -> TargetText:
    """Whole, of one text. One that any sentence's is cut in is cut."""
    parts = [one.hypotheses[min(rank, len(one.hypotheses) - 1)] for one in asked]
    reasons = {one.finish_reason for one in parts}
    reason = reasons.pop() if len(reasons) == 1 else FinishReason.LENGTH if reasons else FinishReason.END_TOKEN
    score, tokens = parts[0].score if len(parts) == 1 else 0.0, sum(one.tokens for one in parts)
    return TargetText(text, score, tokens, reason, log_prob=fsum(one.log_prob for one in parts))


def _written(part: Part, found: Sequence[Piece], answers: Answers, rank: int) -> str:
    """A part with the translation of this rank, from 0, of every sentence in it."""
    if isinstance(part, Copied):
        return part.raw
    words, _ = joined(found, lambda one: _words(one, answers, rank))
    return marked_up(part, words)


def _words(piece: Piece, answers: Answers, rank: int) -> Sequence[Word]:
    """Those of the best translation, where that of this rank has lost a placeholder, or there are not so many."""
    if isinstance(piece, Fixed):
        return piece.words
    hypotheses = answers[piece].hypotheses
    usable = rank < len(hypotheses) and piece.wording.keeps(hypotheses[rank].text)
    return list(piece.words(hypotheses[rank if usable else 0]))


def _placed(parts: Parts, answers: Answers) -> Iterator[tuple[Range, Range]]:
    """Of every sentence of a plain text, where it stands in it and in the best translation."""
    source = target = 0
    for part, found in parts:
        if isinstance(part, Copied):
            source, target = source + len(part.raw), target + len(part.raw)
            continue
        words, places = joined(found, lambda one: _words(one, answers, 0))
        ends = [0, *accumulate(len(word.text) for word in words)]
        for piece, (first, last) in zip(found, places, strict=True):
            if isinstance(piece, Sentence):
                begin, end = piece.span
                yield (source + begin, source + end), (target + ends[first], target + ends[last])
        source, target = source + len(part.text), target + ends[-1]
