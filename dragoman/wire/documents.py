"""Between plain values and protobuf, for documents."""

from collections.abc import Mapping
from typing import Literal

from dragoman.results.document import DocumentProgress, TranslatedDocument
from dragoman.v1 import translation_pb2
from dragoman.wire.given import check_known
from dragoman.wire.messages import TargetOptions, decoding_options
from dragoman.wire.options import number
from dragoman.wire.texts import text_fields

DocumentFormat = Literal["txt", "md", "html", "srt", "vtt", "po", "xliff", "docx", "odt"]
FORMATS: dict[str, translation_pb2.DocumentFormat.ValueType] = {
    name.removeprefix("DOCUMENT_FORMAT_").lower(): number
    for name, number in translation_pb2.DocumentFormat.items()
    if number != translation_pb2.DOCUMENT_FORMAT_UNSPECIFIED
}
ENDINGS = {"markdown": "md", "htm": "html", "xhtml": "html", "pot": "po", "xlf": "xliff", "text": "txt"}
"""Other endings of names of files, and the formats that they mean."""


class DocumentOptions(TargetOptions, total=False):
    """How to translate a document. What is left out, or None, takes the model's default."""

    glossary: Mapping[str, str] | None
    """See `TextOptions`."""
    no_cache: bool
    """See `TranslationOptions`."""
    pivot: bool
    """See `TranslationOptions`."""


def format_of(file_name: str) -> str | None:
    """The format that the name of a file ends with. None: it is not known."""
    ending = file_name.rpartition(".")[2].lower()
    known = ENDINGS.get(ending, ending)
    return known if known in FORMATS else None


def document_request(
    document: bytes, document_format: str, options: DocumentOptions
) -> translation_pb2.TranslateDocumentRequest:
    """The request to translate a document. Raises TypeError or ValueError for an impossible option."""
    if not isinstance(document, bytes):
        raise TypeError(f"document is {type(document).__name__}; it must be bytes, as they are in a file")
    check_known(options, DocumentOptions)
    return translation_pb2.TranslateDocumentRequest(
        document=document,
        format=number("format", document_format, FORMATS),
        source_language_code=options.get("source_language", ""),
        target_language_code=options.get("target_language", ""),
        model=options.get("model", ""),
        decoding=decoding_options(options),
        no_cache=options.get("no_cache", False),
        prompt=options.get("prompt"),
        pivot=options.get("pivot", False),
        **text_fields({"glossary": options.get("glossary")}),
    )


def document_event(message: translation_pb2.TranslateDocumentResponse) -> DocumentProgress | TranslatedDocument:
    """One event of it."""
    if message.WhichOneof("event") == "document":
        found = message.document
        return TranslatedDocument(found.document, found.texts, found.source_tokens, found.model)
    return DocumentProgress(message.progress.texts, message.progress.total_texts)
