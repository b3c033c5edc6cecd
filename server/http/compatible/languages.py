"""Which languages are served, by the codes and the English names that clients of other services use."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

from models.languages import lookup
from server.catalog.catalog import Catalog
from server.catalog.served_model import ServedModel
from server.translation.translator import Translator

ALIASES = {
    "no": "nb",
    "nb": "no",
    "fil": "tl",
    "pb": "pt-BR",
    "zh": "zh-Hans",
    "zt": "zh-Hant",
    "zh-cn": "zh-Hans",
    "zh-tw": "zh-Hant",
}
"""Codes that some clients use for what others call otherwise."""

NAMES: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""In English, by ISO 639 code."""


class ServedLanguages:
    """Of all models that translate, as they are now: a new version of one may have others.

    Codes are BCP 47 tags, as the models have them.
    """

    def __init__(self, models: Catalog[Translator]) -> None:
        self._models = models

    @property
    def sources(self) -> list[str]:
        return _each(tag for model in self._translating for tag in model.source_languages)

    @property
    def targets(self) -> list[str]:
        return _each(tag for model in self._translating for tag in model.target_languages)

    @property
    def all(self) -> list[str]:
        """Sources first."""
        return _each((*self.sources, *self.targets))

    def targets_of(self, source: str) -> list[str]:
        """Empty: no model reads it."""
        reading = [model for model in self._translating if source in model.source_languages]
        return _each(tag for model in reading for tag in model.target_languages)

    @property
    def _translating(self) -> list[ServedModel]:
        return [one.model for one in self._models if one.model.decoder_layers]

    def find(self, code: str) -> str | None:
        """The tag that a caller's code is served by. None: no model has it."""
        return lookup(code, self.all) or lookup(ALIASES.get(code.lower(), ""), self.all)


def name_of(tag: str) -> str:
    """In English; the tag itself where there is none."""
    language, _, rest = tag.partition("-")
    name = NAMES.get(language.lower(), tag)
    return f"{name} ({rest})" if rest and name != tag else name


def _each(tags: Iterable[str]) -> list[str]:
    """Every one once."""
    return list(dict.fromkeys(tags))
