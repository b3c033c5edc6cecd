"""What a document is to all formats: texts in parts, and how they become a document again."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from server.errors import DocumentBroken
from server.text.parts import Block, Copied, Part

BYTE_ORDER_MARK = "\ufeff"
NO_TEXT = re.compile("[\0\ufdd0-\ufdef\ufffe\uffff]")
"""Characters that stand for none, and so for something else while a document is translated."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Most that a document may have."""

    bytes: int
    """Of all its files, unpacked."""
    texts: int


@dataclass(frozen=True, slots=True)
class Languages:
    """BCP-47 codes, as some formats name them in a document. Empty: not known."""

    source: str
    target: str


@dataclass(frozen=True)
class Document:
    """One that was read."""

    members: Sequence[Sequence[Part]]
    """Its texts, such as the files of an archive, each in parts."""
    write: Callable[[Sequence[str]], bytes]
    """What it is with these as its members, translated."""

    @property
    def texts(self) -> int:
        """Blocks to translate."""
        return sum(isinstance(part, Block) for member in self.members for part in member)


class Format(Protocol):
    """Reads documents of one format."""

    def __call__(self, data: bytes, limits: Limits, languages: Languages) -> Document:
        """Raises DocumentBroken or DocumentTooLarge."""
        ...


def text_document(name: str, read: Callable[[str], Sequence[Part]], settle: Callable[[str], str] = str) -> Format:
    """The format of that name, of documents that are one text in UTF-8.

    settle: what is done to the whole text at the end
    """

    def open_text(data: bytes, limits: Limits, languages: Languages) -> Document:
        text = decoded(data, name)
        mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        parts = [Copied(mark), *read(text.removeprefix(mark))]
        return Document([parts], lambda members: settle(members[0]).encode())

    return open_text


def decoded(data: bytes, name: str) -> str:
    """Raises DocumentBroken."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        byte, at = data[error.start], error.start + 1
        raise DocumentBroken(name, f"byte {at} (0x{byte:02x}) is not UTF-8; convert it to UTF-8 first") from error
    if found := NO_TEXT.search(text):
        what = f"character {found.start() + 1} is U+{ord(found.group()):04X}"
        raise DocumentBroken(name, f"{what}, as no text has one: is it of another format?")
    return text


def windows(document: Document, characters: int) -> Iterator[list[Part]]:
    """All parts of all members, in order, in lists of about so many characters to translate."""
    window, size = list[Part](), 0
    for part in (part for member in document.members for part in member):
        window.append(part)
        size += len(part.text) if isinstance(part, Block) else 0
        if size >= characters:
            yield window
            window, size = [], 0
    if window:
        yield window


def put_together(document: Document, written: Sequence[str]) -> bytes:
    """The document with every part as it is written in the other language, in order."""
    members, at = list[str](), 0
    for member in document.members:
        members.append("".join(written[at : at + len(member)]))
        at += len(member)
    return document.write(members)
