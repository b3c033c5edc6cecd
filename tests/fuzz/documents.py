"""Documents, opened and written again: the first line is the format, and the rest the file."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from server.errors import ServerError
from server.text.documents.formats import FORMATS
from tests.fuzz import CORPUS, Attempt
from tests.server.text.test_documents import translated, with_file

INSIDE: Mapping[str, tuple[str, str]] = {
    "docx.xml": ("docx", "word/document.xml"),
    "odt.xml": ("odt", "content.xml"),
}
"""What is no format: a file that takes its place in an archive of the corpus, with a checksum that is right."""


@contextmanager
def trying() -> Iterator[Attempt]:
    yield attempt


def attempt(data: bytes) -> None:
    """It is refused, or it is a document again when all of its words are said in another way."""
    line, _, file = data.partition(b"\n")
    name = line.decode(errors="replace")
    if name in INSIDE:
        name, member = INSIDE[name]
        archive = (CORPUS / "documents" / name).read_bytes().partition(b"\n")[2]
        file = with_file(archive, member, file)
    if name in FORMATS:
        with suppress(ServerError):
            assert translated(name, file, str.swapcase)
