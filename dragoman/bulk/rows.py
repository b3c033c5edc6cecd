"""What bulk knows of a format: rows with a text each, and where their translations go."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a source. It becomes a row of the target, whatever becomes of its text."""

    text: str | None
    """None: it has none, or one that cannot be read."""
    place: str
    """Where it stands: "line 3"."""
    share: float
    """Of its file that is read when it is."""
    fault: str = ""
    """Why it cannot be read. Empty: it can."""

    @property
    def wanted(self) -> str | None:
        """The text, if there is anything to translate in it."""
        return self.text if self.text is not None and not is_blank(self.text) else None


@dataclass(frozen=True, slots=True)
class Columns:
    """Of a format that has columns."""

    source: str
    """The one with the texts."""
    target: str
    """The new one."""


class Format(Protocol):
    """A source in its format."""

    def check(self) -> None:
        """Raises WrongUsage where a column is missing, or one of the new one's name is there already; or OSError."""
        ...

    def rows(self) -> Iterator[Row]:
        """All rows in their order; few of them are in memory. Raises BulkError where they cannot be told apart."""
        ...

    def write(self, part: Path, translations: Iterable[str | None]) -> None:
        """Writes the target: all that the source has, and the translations.

        translations: of every row. None: it has none, because there was nothing to translate, or it was refused
        Raises ValueError where rows and translations are not as many.
        """
        ...


def is_blank(text: str) -> bool:
    """Whether there is nothing to translate."""
    return not text or text.isspace()


def value_of(text: str | None, translation: str | None) -> str | None:
    """What the new column has: of a text without anything to translate, the text."""
    return text if translation is None and text is not None and is_blank(text) else translation
