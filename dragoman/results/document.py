"""A document that is translated."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DocumentProgress:
    """How far a document is."""

    texts: int
    """Such as paragraphs, that are translated."""
    total_texts: int


@dataclass(frozen=True, slots=True)
class TranslatedDocument:
    """A document in the other language."""

    document: bytes
    texts: int
    """That were translated."""
    source_tokens: int
    model: str
    """That translated."""
