"""What an error tells its caller."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import ClassVar, Literal

Status = Literal[
    "INVALID_ARGUMENT",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "ABORTED",
    "UNAVAILABLE",
    "INTERNAL",
]
"""Name of a gRPC status code."""

SHOWN = 64
"""Most characters of a caller's value that an error repeats: a status travels in a header of some kilobytes."""


MANY = 8
"""Of so many names the nearest ones are told apart."""
NEAREST = 3


class ServerError(Exception):
    """An error with a status and a stable reason. Expected."""

    status: ClassVar[Status]
    reason: ClassVar[str]

    def __init__(
        self,
        message: str,
        metadata: Mapping[str, object] | None = None,
        field: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """`metadata`: the changing parts of the message.

        field: the one of the request that is wrong. What comes behind a space is for people
        """
        super().__init__(message)
        self.message = message
        self.metadata = {key: shorten(str(value)) for key, value in (metadata or {}).items()}
        self.field = None if field is None else field.partition(" ")[0]
        self.retry_after_s = retry_after_s


def nearest(value: str, known: Sequence[str]) -> str:
    """What was meant, maybe: names that look alike, or else begin with the same word. Of few, the list says enough."""
    if len(known) < MANY:
        return ""
    begins = f"{re.split('[-_]', value.lower(), maxsplit=1)[0]}-"
    alike = get_close_matches(value[:SHOWN], known, n=NEAREST)
    close = alike or [name for name in known if name.lower().startswith(begins)][:NEAREST]
    return f"; the nearest are {', '.join(close)}" if close else ""


def quoted(value: str) -> str:
    """A caller's value, in quotes and not too long."""
    return f'"{shorten(value)}"'


def shorten(text: str, most: int = SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
