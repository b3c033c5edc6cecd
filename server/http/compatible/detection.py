"""In which of the served languages a text is."""

from collections.abc import Iterable, Sequence
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


class Detector(Protocol):
    """Whatever tells languages apart."""

    def rank(self, text: str) -> Sequence[Detected]:
        """All languages it knows, the likeliest first. Empty: the text has nothing to tell by."""
        ...


class Langid:
    """py3langid (Lui and Baldwin 2012), which chooses among the served languages only: so it errs less."""

    def __init__(self) -> None:
        """Takes most of a second."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._tags: dict[str, str] = {}
        """Of the languages that it knows, by its own names."""

    def choose_among(self, languages: Iterable[str]) -> None:
        """BCP 47 tags; those that it does not know are never found. To be called once: all others are given up."""
        every, known = self._identifier, set(self._identifier.labels)
        for tag in languages:
            label = tag.partition("-")[0].lower()
            if label in known:
                self._tags.setdefault(label, tag)
        every.set_languages(list(self._tags))
        # Made anew of what is left: it would keep the tables of all languages, 28 MB, to be set to others.
        chosen = every.nb_ptc, every.nb_pc, every.nb_classes, every.tk_nextmove, every.tk_output
        self._identifier = type(every)(*chosen, norm_probs=True, tk_row=every.tk_row)

    def rank(self, text: str) -> Sequence[Detected]:
        if not self._tags or not any(map(str.isalpha, text)):
            return ()
        return [Detected(self._tags[label], share) for label, share in self._identifier.rank(text[:READ_CHARACTERS])]
