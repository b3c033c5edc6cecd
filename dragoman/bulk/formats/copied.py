"""A file that belongs to others and has no text."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from dragoman.bulk.rows import Columns, Row


class Copied:
    """It stays as it is."""

    def __init__(self, source: Path, columns: Columns) -> None:
        self._source = source

    def check(self) -> None:
        self._source.open("rb").close()

    def rows(self) -> Iterator[Row]:
        return iter(())

    def write(self, part: Path, translations: Iterable[str | None]) -> None:
        shutil.copyfile(self._source, part)
