"""JSON Lines: an object on each line."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dragoman.bulk.formats.lines import Line, decoded, read_lines
from dragoman.bulk.rows import Columns, Row, is_blank, value_of

KINDS = {bool: "true or false", float: "a number", list: "a list", dict: "an object"}
"""Of values of JSON that are neither text nor null."""


class JsonLines:
    """Every object gets one more key, at its end; all its other bytes stay, and so do lines without an object."""

    def __init__(self, source: Path, columns: Columns) -> None:
        self._source, self._columns = source, columns

    def check(self) -> None:
        self._source.open("rb").close()

    def rows(self) -> Iterator[Row]:
        for line in read_lines(self._source):
            _, text, fault = self._read(line)
            yield Row(text, line.place, line.share, fault)

    def write(self, part: Path, translations: Iterable[str | None]) -> None:
        key = json.dumps(self._columns.target, ensure_ascii=False)
        with part.open("wb") as out:
            for line, translation in zip(read_lines(self._source), translations, strict=True):
                whole, text, _ = self._read(line)
                if whole is None:
                    out.write(line.raw)
                    continue
                last = line.raw.rindex(b"}")
                value = json.dumps(value_of(text, translation), ensure_ascii=False)
                out.write(line.raw[:last].rstrip() + f", {key}: {value}".encode() + line.raw[last:])

    def _read(self, line: Line) -> tuple[dict[str, Any] | None, str | None, str]:
        """The object, if the line is one that may get the key; its text; and what is wrong."""
        written, fault = decoded(line.parts()[1])
        if written is None or is_blank(written):
            return None, None, fault
        try:
            found = json.loads(written, parse_int=float)  # of any length, which int is not
        except (ValueError, RecursionError) as error:
            return None, None, f"is no JSON: {error}"
        column, target = self._columns.source, self._columns.target
        if not isinstance(found, dict) or column not in found:
            what = f"has no key {column!r}: name the one with the text by --column"
            return None, None, what if isinstance(found, dict) else "is no JSON object"
        if target in found:
            return None, None, f"has a key {target!r} already: name another one by --into"
        text = found[column]
        if text is not None and not isinstance(text, str):
            return found, None, f"has no text in {column!r}, but {KINDS[type(text)]}"
        if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
            return found, None, f"has half a character in {column!r} (a lone surrogate)"
        return found, text, ""
