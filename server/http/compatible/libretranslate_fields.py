"""What LibreTranslate's requests name: their fields and languages, refused in its words."""

from collections.abc import Sequence
from typing import Any

from server.http.asked import Asked
from server.http.compatible.detection import Detected
from server.http.compatible.languages import name_of
from server.http.compatible.texts import Texts
from server.http.errors import InvalidField
from server.http.fields import Fields, read_fields

AUTO = "auto"
UNKNOWN = "en"
"""What it calls the language of a text that nothing can be told of."""
BROKEN = "Invalid JSON format"
MOST_SHOWN = 64
"""Characters of a caller's value that an error repeats."""


async def fields_of(asked: Asked, files: int = 0) -> Fields:
    """Of a request. Raises ServerError.

    files: most that a form may have
    """
    return await read_fields(asked, BROKEN, files)


def required(fields: Fields, name: str) -> Any:
    """Raises InvalidField."""
    value = fields.get(name)
    if value is None or value == "" or value == []:
        raise InvalidField(name, f"Invalid request: missing {name} parameter")
    return value


class Named:
    """The languages that requests may name."""

    def __init__(self, texts: Texts) -> None:
        self._texts, self._languages = texts, texts.languages

    def tag(self, field: str, code: str) -> str:
        """Raises InvalidField."""
        tag = self._languages.find(code)
        if tag is None:
            raise InvalidField(field, f"{code[:MOST_SHOWN]} is not supported")
        return tag

    def check_pair(self, source: str, target: str) -> None:
        """Raises InvalidField."""
        if source not in self._languages.sources and source != target:
            raise InvalidField("source", f"{source} is not supported")
        if target != source and target not in self._languages.targets_of(source):
            told = f"{name_of(target)} ({target}) is not available as a target language from"
            raise InvalidField("target", f"{told} {name_of(source)} ({source})")

    async def best(self, texts: Sequence[str]) -> list[Detected]:
        """Of a text that tells nothing, a language that is served, so that it may come back as it is."""
        unknown = Detected(self._languages.find(UNKNOWN) or self._languages.all[0], 0)
        return [ranked[0] if ranked else unknown for ranked in await self._texts.detect(texts)]
