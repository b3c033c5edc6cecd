"""What is wrong with a document."""

from server.errors.error import SHOWN, ServerError, shorten
from server.errors.request import InvalidRequest


class DocumentBroken(InvalidRequest):
    """Bytes that cannot be read as the format that the caller says they are."""

    reason = "DOCUMENT_BROKEN"

    def __init__(self, name: str, why: str) -> None:
        message = f"document is no {name} that can be read: {shorten(why, 4 * SHOWN)}"
        super().__init__(message, {"format": name}, "document")


class DocumentTooLarge(ServerError):
    """A document that unpacks to too much, or has too many texts. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "DOCUMENT_TOO_LARGE"

    def __init__(self, what: str, count: int, most: int, way: str = "send its parts") -> None:
        """what: is counted, such as "texts"."""
        message = f"document has {count} {what}; the server takes {most}: {way}"
        super().__init__(message, {"what": what, "count": count, "max": most}, "document")
