"""What every kind of source is read into."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph in both languages, or in one of them where the other has none that belongs to it."""

    document: str
    """Its file, or what else names the document within the source."""
    english: str | None
    portuguese: str | None


Reader = Callable[[Path], Iterator[Passage]]
"""Reads a source. The folder holds every package, unpacked, each under its name."""


def together(*readers: Reader) -> Reader:
    """One source that is read in several ways."""

    def read(root: Path) -> Iterator[Passage]:
        for reader in readers:
            yield from reader(root)

    return read
