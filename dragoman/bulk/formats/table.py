"""Tables whose values stand between commas or tabs, with a row of names (RFC 4180)."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dragoman.bulk.errors import BulkError, WrongUsage
from dragoman.bulk.formats.lines import BOM, MOST_BYTES, decoded, read_lines
from dragoman.bulk.rows import Columns, Row, value_of

ROW_END = "\r\n"
"""Of RFC 4180. The `csv` of Python before 3.13 quotes the characters that end its rows, and no other line breaks."""


OTHER_MARKS = {
    ";": "its values seem to stand between semicolons; save it with commas, and --format csv reads it",
    "\t": "its values seem to stand between tabs, which --format tsv reads",
    ",": "its values seem to stand between commas, which --format csv reads",
}
"""What to tell of a row of names that is one name."""


@dataclass(slots=True)
class Record:
    """A row of the table, which may be several lines."""

    fields: list[str]
    raw: bytes
    """Of all its lines."""
    number: int
    """Of its first line."""
    share: float
    fault: str
    """Of bytes that are no text."""


class Separated:
    """Every row gets one more value, at its end; all its other bytes stay."""

    delimiter: str

    def __init__(self, source: Path, columns: Columns) -> None:
        self._source, self._columns = source, columns

    def check(self) -> None:
        self._place()

    def rows(self) -> Iterator[Row]:
        place, names = self._place()
        for record in self._records():
            text, fault = self._text(record, place, names)
            yield Row(text, f"line {record.number}", record.share, fault)

    def write(self, part: Path, translations: Iterable[str | None]) -> None:
        place, names = self._place()
        with part.open("wb") as out:
            header = next(self._records(header=True))
            out.write(self._longer(header, self._columns.target))
            for record, translation in zip(self._records(), translations, strict=True):
                text, _ = self._text(record, place, names)
                out.write(self._longer(record, value_of(text, translation) or "") if record.fields else record.raw)

    def _place(self) -> tuple[int, int]:
        """Where the texts stand in a row, and how many names there are. Raises WrongUsage."""
        header = next(self._records(header=True), None)
        names = [] if header is None else header.fields
        if header is not None and header.fault:
            raise WrongUsage(f"{self._source}: line {header.number} {header.fault}")
        shown = ", ".join(names) or "no row of names"
        if names.count(self._columns.source) != 1:
            way = "name the column by --column"
            if len(names) == 1:
                way = next((told for mark, told in OTHER_MARKS.items() if mark in names[0]), way)
            raise WrongUsage(f"{self._source} has {shown}, and not one {self._columns.source!r}: {way}")
        if self._columns.target in names:
            raise WrongUsage(f"{self._source} has {shown}: name another new column by --into")
        return names.index(self._columns.source), len(names)

    def _text(self, record: Record, place: int, names: int) -> tuple[str | None, str]:
        if record.fault or not record.fields:
            return None, record.fault
        if len(record.fields) != names:
            return None, f"has {len(record.fields)} values; the row of names has {names}"
        return record.fields[place], ""

    def _records(self, header: bool = False) -> Iterator[Record]:
        """Those after the row of names, or it too. Raises BulkError where quotes are not as they must be."""
        csv.field_size_limit(MOST_BYTES)
        read, fault, share = list[bytes](), "", 0.0

        def lines() -> Iterator[str]:
            nonlocal fault, share
            for line in read_lines(self._source):
                read.append(line.raw)
                text, wrong = decoded(line.raw.removeprefix(BOM) if line.number == 1 else line.raw)
                fault, share = fault or wrong, line.share
                yield line.raw.decode(errors="surrogateescape") if text is None else text

        reader = csv.reader(lines(), delimiter=self.delimiter, strict=True)
        number = 1
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise BulkError(
                    f"{self._source}: line {number}: the row cannot be read ({error}): in a value with quotes or line "
                    'breaks, which stands between quotes, each quote is two (""), and rows end with LF or CR LF'
                ) from error
            if fields is None:
                return
            if header or number > 1:
                yield Record(fields, b"".join(read), number, share, fault)
            number, fault = number + len(read), ""
            read.clear()

    def _longer(self, record: Record, value: str) -> bytes:
        """The row with one more value."""
        written = io.StringIO()
        csv.writer(written, delimiter=self.delimiter, lineterminator=ROW_END).writerow(["", value])
        row = record.raw.rstrip(b"\r\n")  # also of CR CR LF, as Python's csv makes it where a file translates line ends
        return row + written.getvalue().removesuffix(ROW_END).encode() + record.raw[len(row) :]


class CommaSeparated(Separated):
    """CSV."""

    delimiter = ","


class TabSeparated(Separated):
    """TSV."""

    delimiter = "\t"
