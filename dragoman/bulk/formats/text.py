"""Plain text: a text on each line."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from dragoman.bulk.formats.lines import decoded, read_lines
from dragoman.bulk.rows import Columns, Row, is_blank


class Text:
    """Every line becomes a line with the same end. Those without a text stay as they are."""

    def __init__(self, source: Path, columns: Columns) -> None:
        self._source = source

    def check(self) -> None:
        self._source.open("rb").close()

    def rows(self) -> Iterator[Row]:
        for line in read_lines(self._source):
            text, fault = decoded(line.parts()[1])
            yield Row(text, line.place, line.share, fault)

    def write(self, part: Path, translations: Iterable[str | None]) -> None:
        with part.open("wb") as out:
            for line, translation in zip(read_lines(self._source), translations, strict=True):
                mark, body, end = line.parts()
                if translation is not None:
                    body = translation.replace("\r", " ").replace("\n", " ").encode()
                elif not is_blank(decoded(body)[0] or "refused"):
                    body = b""
                out.write(mark + body + end)
