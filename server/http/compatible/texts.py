"""Texts of other services' requests: they may have several lines, be blank, and say nothing of their language."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from models.decoding import Options
from server.catalog.catalog import Catalog
from server.http.compatible.detection import Detected, Detector
from server.http.compatible.languages import ServedLanguages
from server.translation.answer import Translation
from server.translation.options import Route
from server.translation.translator import Translator

BETWEEN_LINES = re.compile(r"(^\s+|\s*\n\s*|\s+$)")
"""What is kept as it is: the line breaks, and the space around them."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A text in another language: the best translation first."""

    texts: tuple[str, ...]


class Texts:
    """Translates whole texts."""

    def __init__(self, models: Catalog[Translator], detector: Detector) -> None:
        self.languages = ServedLanguages(models)
        self._models, self._detector = models, detector

    def detect(self, text: str) -> Sequence[Detected]:
        """The languages that it may be in, the likeliest first. Empty: it has nothing to tell by."""
        return self._detector.rank(text)

    async def translate(
        self, texts: Sequence[str], sources: Sequence[str], target: str, options: Options, count: int = 1
    ) -> list[Translated]:
        """`count` translations of every text. Raises ServerError.

        sources: of each text. One that is in the target language already comes back as it is, as one that is blank.
        """
        found: dict[int, Translated] = {}
        for source in dict.fromkeys(sources):
            of_source = [index for index, its in enumerate(sources) if its == source]
            asked = [texts[index] for index in of_source]
            if source == target:
                results = [Translated((text,)) for text in asked]
            else:
                results = await self._translate(asked, Route(source, target), options, count)
            found |= dict(zip(of_source, results, strict=True))
        return [found[index] for index in range(len(texts))]

    async def _translate(self, texts: Sequence[str], route: Route, options: Options, count: int) -> list[Translated]:
        """Of one language. The n-th translation of a text has the n-th best of each of its lines."""
        pieces = [BETWEEN_LINES.split(text) for text in texts]
        contents = [piece for of_text in pieces for piece in of_text if is_text(piece)]
        if not contents:
            return [_joined(of_text, iter(()), count) for of_text in pieces]
        translator = self._models.route("", route.source_language, route.target_language)
        translations = iter(await translator.translate(contents, route, options))
        return [_joined(of_text, translations, count) for of_text in pieces]


def _joined(pieces: Sequence[str], translations: Iterator[Translation], count: int) -> Translated:
    """The pieces of a text, with the next translations in the places of those that are texts."""
    if not any(map(is_text, pieces)):
        return Translated(("".join(pieces),))
    choices = [
        [hypothesis.text for hypothesis in next(translations).hypotheses] if is_text(piece) else [piece] * count
        for piece in pieces
    ]
    return Translated(tuple(map("".join, zip(*choices, strict=True))))


def is_text(piece: str) -> bool:
    """Whether there is something to translate."""
    return bool(piece) and not piece.isspace()
