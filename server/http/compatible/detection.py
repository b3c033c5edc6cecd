"""In which of the served languages a text is."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

READ_CHARACTERS = 1024
"""Of a text that are looked at: enough to tell, in a millisecond."""


@dataclass(frozen=True, slots=True)
class Detected:
    """A guess."""

    language: str
    """As the models call it."""
    confidence: float
    """From 0 to 1."""


class Ranking(Protocol):
    """Whatever tells some languages apart."""

    def rank(self, text: str) -> Sequence[Detected]:
        """All languages it knows, the likeliest first. Empty: the text has nothing to tell by."""
        ...


class Langid:
    """py3langid (Lui and Baldwin 2012), which chooses among some languages only: so it errs less."""

    def __init__(self, languages: Iterable[str]) -> None:
        """BCP 47 tags; those that it does not know are never found. Takes most of a second."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        every: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = set(every.labels)
        self._tags: dict[str, str] = {}
        """Of the languages that it knows, by its own names."""
        for tag in languages:
            label = tag.partition("-")[0].lower()
            if label in known:
                self._tags.setdefault(label, tag)
        every.set_languages(list(self._tags))
        # Made anew of what is left: it would keep the tables of all languages, 28 MB, to be set to others.
        chosen = every.nb_ptc, every.nb_pc, every.nb_classes, every.tk_nextmove, every.tk_output
        self._identifier: Any = type(every)(*chosen, norm_probs=True, tk_row=every.tk_row)

    def rank(self, text: str) -> Sequence[Detected]:
        if not self._tags or not any(map(str.isalpha, text)):
            return ()
        return [Detected(self._tags[label], share) for label, share in self._identifier.rank(text[:READ_CHARACTERS])]


class Detector:
    """Tells the served languages apart. Used by one event loop.

    What it knows of them is loaded when somebody asks, and again once others are served: it takes most of a second and
    54 MB, and most servers are told the language.
    """

    def __init__(
        self, served: Callable[[], Iterable[str]], load: Callable[[tuple[str, ...]], Ranking] = Langid
    ) -> None:
        """served: BCP 47 tags, as they are now. load: for these languages, on another thread."""
        self._served, self._load = served, load
        self._languages: tuple[str, ...] | None = None
        self._loading: asyncio.Future[Ranking]
        """For these languages."""

    async def rank(self, texts: Iterable[str]) -> list[Sequence[Detected]]:
        """Of each those that are served, the likeliest first. Empty: the text has nothing to tell by."""
        languages = tuple(self._served())
        if languages != self._languages:
            self._languages = languages
            self._loading = asyncio.ensure_future(asyncio.to_thread(self._load, languages))
        try:
            ranking = await asyncio.shield(self._loading)  # others may wait for it when this caller leaves
        except Exception:
            self._languages = None  # whoever asks next may find it readable
            raise
        return [ranking.rank(text) for text in texts]
