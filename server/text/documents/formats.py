"""The formats of documents, by the names that their files end with."""

from collections.abc import Mapping
from importlib.util import find_spec

from server.errors import BlankContent, DocumentTooLarge, ExtraMissing, HtmlTooLong
from server.text.documents.document import Document, Format, Languages, Limits, text_document
from server.text.documents.gettext import open_po
from server.text.documents.markdown import open_md
from server.text.documents.subtitles import open_srt, open_vtt
from server.text.documents.xml_formats.archive import Archive
from server.text.documents.xml_formats.open_document import NAME as OPEN_DOCUMENT
from server.text.documents.xml_formats.open_document import open_odt
from server.text.documents.xml_formats.word import NAME as WORD
from server.text.documents.xml_formats.word import open_docx
from server.text.documents.xml_formats.xliff import open_xliff
from server.text.html import read_html
from server.text.parts import Part
from server.text.plain import read_plain
from server.text.texts import MOST_HTML


def _read_html(text: str) -> list[Part]:
    if len(text) > MOST_HTML:
        raise HtmlTooLong("document", len(text), MOST_HTML)
    return read_html(text)


FORMATS: Mapping[str, Format] = {
    "txt": text_document("text file (txt)", read_plain),
    "md": open_md,
    "html": text_document("HTML file", _read_html),
    "srt": open_srt,
    "vtt": open_vtt,
    "po": open_po,
    "xliff": open_xliff,
    "docx": open_docx,
    "odt": open_odt,
}


ARCHIVES = {"docx": WORD, "odt": OPEN_DOCUMENT}
"""Those that unpack to more, and their names in errors."""


def check_format(name: str) -> None:
    """Raises ExtraMissing."""
    if name == "md" and find_spec("markdown_it") is None:
        raise ExtraMissing("format", "markdown-it-py", "documents")


def unpacked_bytes(name: str, data: bytes, limits: Limits) -> int:
    """What reading it takes, and what it says of itself. Raises as `read_document` does."""
    if not data.strip():
        raise BlankContent("document", len(data))
    size = Archive(data, ARCHIVES[name], limits).size if name in ARCHIVES else len(data)
    if size > limits.bytes:
        raise DocumentTooLarge("bytes", size, limits.bytes, "send its parts, or have --max-document-bytes raised")
    return size


def read_document(name: str, data: bytes, limits: Limits, languages: Languages) -> Document:
    """Reads a document that is within the limits of bytes.

    Raises BlankContent, DocumentBroken, DocumentTooLarge or HtmlTooLong.
    """
    document = FORMATS[name](data, limits, languages)
    if document.texts > limits.texts:
        way = "send its parts, or have --max-document-texts raised"
        raise DocumentTooLarge("texts", document.texts, limits.texts, way)
    return document
