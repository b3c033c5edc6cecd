"""Texts of other services' requests: they may be long, or blank, and say nothing of their language."""

from collections.abc import Callable, Sequence
from functools import partial

from models.decoding import Options
from server.catalog.catalog import Catalog
from server.http.compatible.detection import Detected, Detector, Langid, Ranking
from server.http.compatible.languages import ServedLanguages
from server.text.texts import Shape
from server.text.texts import Texts as WholeTexts
from server.translation.answer import Translation
from server.translation.options import Route
from server.translation.translator import Translator


class Texts:
    """Translates whole texts."""

    def __init__(self, models: Catalog[Translator], load: Callable[[tuple[str, ...]], Ranking] = Langid) -> None:
        """load: what tells these languages apart."""
        self.languages = ServedLanguages(models)
        self._models, self._detector = models, Detector(lambda: self.languages.all, load)

    async def detect(self, texts: Sequence[str]) -> list[Sequence[Detected]]:
        """The languages that each may be in, the likeliest first. Empty: it has nothing to tell by."""
        return await self._detector.rank(texts)

    async def translate(
        self, texts: Sequence[str], sources: Sequence[str], target: str, options: Options, shape: Shape
    ) -> list[Sequence[str]]:
        """The translations of every text, the best first. Raises ServerError.

        sources: of each text. One that is in the target language already comes back as it is, as one that is blank.
        """
        found: dict[int, Sequence[str]] = {}
        for source in dict.fromkeys(sources):
            of_source = [index for index, its in enumerate(sources) if its == source]
            asked = [texts[index] for index in of_source]
            results: list[Sequence[str]] = [(one,) for one in asked]
            if source != target:
                results = await self._translate(asked, Route(source, target), options, shape)
            found |= dict(zip(of_source, results, strict=True))
        return [found[index] for index in range(len(texts))]

    async def _translate(
        self, texts: Sequence[str], route: Route, options: Options, shape: Shape
    ) -> list[Sequence[str]]:
        """Of one language."""
        model = self._models.route("", route.source_language, route.target_language)
        fits = model.fits(route.source_language)
        whole = WholeTexts(model.model, route.source_language, fits, partial(_ask, model, route))
        found = await whole.translate(texts, shape, options)
        return [[one.text for one in translation.hypotheses] for translation in found]


async def _ask(model: Translator, route: Route, contents: Sequence[str], options: Options) -> list[Translation]:
    return await model.translate(contents, route, options)
