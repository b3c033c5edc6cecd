"""Lines of a file, byte for byte."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dragoman.bulk.errors import BulkError

MOST_BYTES = 16 * 1024 * 1024
"""Of a line. A file with longer ones is no text that has lines, and would fill the memory."""
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it stands in its file."""

    number: int
    """From 1."""
    raw: bytes
    """With its line end: CR LF, LF, or nothing at the end of the file."""
    share: float
    """Of the file that is read with it."""

    @property
    def place(self) -> str:
        return f"line {self.number}"

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """The byte order mark, if it has one, what the line says, and its end."""
        mark = BOM if self.number == 1 and self.raw.startswith(BOM) else b""
        end = b"\r\n" if self.raw.endswith(b"\r\n") else b"\n" if self.raw.endswith(b"\n") else b""
        return mark, self.raw[len(mark) : len(self.raw) - len(end)], end


def read_lines(file: Path) -> Iterator[Line]:
    """All lines. Raises BulkError for one that is too long, or OSError."""
    size, at, number = max(1, file.stat().st_size), 0, 0
    with file.open("rb") as content:
        while raw := content.readline(MOST_BYTES + 1):
            number, at = number + 1, at + len(raw)
            if len(raw) > MOST_BYTES:
                raise BulkError(
                    f"{file}: line {number} has over {MOST_BYTES} bytes; put one text, or one row, on each line"
                )
            yield Line(number, raw, min(1.0, at / size))


def decoded(raw: bytes) -> tuple[str | None, str]:
    """A text, or why it is none."""
    if (at := raw.find(0)) >= 0:  # it would be UTF-8, too, and all letters of an English file in UTF-16 are
        return None, f"byte {at + 1} (0x00) is in no text; if the file is UTF-16, convert it to UTF-8 first"
    try:
        return raw.decode(), ""
    except UnicodeDecodeError as error:
        byte, at = raw[error.start], error.start + 1
        return None, f"byte {at} (0x{byte:02x}) is not UTF-8; convert the file to UTF-8 first"
