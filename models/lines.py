"""The lines of a text file."""

from pathlib import Path


class NoText(ValueError):
    """What is in a file is no text in UTF-8."""


def lines_of(content: bytes, file: Path) -> list[str]:
    """All lines of what a file has. Raises NoText."""
    try:
        text = content.decode("utf-8-sig")  # some editors put a mark of byte order before a text
    except UnicodeDecodeError as error:
        raise NoText(f"{file} is not UTF-8: {error}") from error
    if (at := content.find(0)) >= 0:  # which is UTF-8, but every other byte of English in UTF-16
        raise NoText(f"{file}: byte {at + 1} (0x00) is in no text; if it is UTF-16, convert it to UTF-8 first")
    # Not splitlines, which takes characters inside a sentence for line ends.
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
