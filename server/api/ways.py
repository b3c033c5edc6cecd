"""How the texts of a request are translated: by one model, or by two."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from models.decoding import Options
from server.text.documents.document import Languages
from server.text.texts import Ask, Texts
from server.translation.answer import Translation
from server.translation.options import Route, source_of, target_of
from server.translation.translator import Translator

Translate = Callable[[Sequence[str], Route, Options, bool, str | None], Awaitable[list[Translation]]]
"""As `Translator.translate`."""


@dataclass(frozen=True, slots=True)
class Way:
    """From one language to the other."""

    route: Route
    first: Translator
    last: Translator
    """The same, or the second of two."""
    translate: Translate
    no_cache: bool
    prompt: str | None
    """Of the last."""

    async def ask(self, contents: Sequence[str], options: Options) -> list[Translation]:
        """Translates sentences. Raises ServerError."""
        return await self.translate(contents, self.route, options, self.no_cache, self.prompt)

    def languages(self) -> Languages:
        """Of a document, as the models call them. Raises LanguageNotSupported."""
        source = source_of(self.route, self.first.model)
        return Languages(source, target_of(self.route, self.last.model, texts_name_target=True))

    def texts(self, patience: Callable[[Ask], Ask] = lambda ask: ask) -> Texts:
        """What translates whole texts. Raises ServerError.

        patience: makes another of what asks for sentences
        """
        prompt = self.prompt if self.first is self.last else None
        fits = self.first.fits(self.route.source_language, prompt)
        return Texts(self.first.model, self.route.source_language, fits, patience(self.ask))
