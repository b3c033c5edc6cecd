"""What only a request by HTTP can have wrong, and the status by which HTTP tells of each error."""

import re
from collections.abc import Iterable, Mapping
from math import ceil

from server.errors import InvalidRequest, ServerError, Unavailable, quoted

STATUSES: Mapping[str, int] = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}
"""By the name of the gRPC status code: those of google.rpc.Code."""
STATUSES_OF_REASONS: Mapping[str, int] = {
    "METHOD_NOT_ALLOWED": 405,
    "REQUEST_STALLED": 408,
    "MESSAGE_TOO_LARGE": 413,
    "VECTORS_TOO_LARGE": 413,
    "LABELS_TOO_LARGE": 413,
    "ATTENTION_TOO_LARGE": 413,
    "DOCUMENT_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "HOST_NOT_SERVED": 421,
}
"""Where HTTP can say more."""
SHORTEST_RETRY_S = 1
"""Retry-After knows whole seconds only."""
TEXTS = re.compile(r"\bcontents(?=\[| has |$)")
"""The field with the texts of our own API, where a message or the path of a field names it."""


class PathNotFound(ServerError):
    """There is nothing at the path. Expected."""

    status = "NOT_FOUND"
    reason = "PATH_NOT_FOUND"

    def __init__(self, path: str, way: str = "/docs lists what there is") -> None:
        super().__init__(f"there is nothing at {quoted(path)}; {way}", {"path": path})


class MethodNotAllowed(ServerError):
    """Something is there, for another method. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "METHOD_NOT_ALLOWED"

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"the method is {quoted(method)}; send {allowed}", {"method": method, "allowed": allowed})
        self.allowed = allowed


class UnsupportedMediaType(InvalidRequest):
    """A body of a kind that the route does not read."""

    reason = "UNSUPPORTED_MEDIA_TYPE"

    def __init__(self, header: str, value: str, supported: Iterable[str]) -> None:
        known = ", ".join(supported)
        message = f"{header} is {quoted(value)}; send {known}"
        super().__init__(message, {"value": value, "supported": known}, header)


class InvalidField(InvalidRequest):
    """A field of a compatible service's request, in that service's own words."""

    reason = "INVALID_FIELD"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message, field=field)


class HostNotServed(ServerError):
    """The request is for another host, as those of a page are whose name was bound to our address. Expected."""

    status = "PERMISSION_DENIED"
    reason = "HOST_NOT_SERVED"

    def __init__(self, host: str, served: Iterable[str]) -> None:
        known = ", ".join(sorted(served))
        message = f"the request is for host {quoted(host)}; this server answers for {known}: see --http-hosts"
        super().__init__(message, {"host": host, "served": known})


class OriginNotAllowed(ServerError):
    """A page of another origin asks. Expected."""

    status = "PERMISSION_DENIED"
    reason = "ORIGIN_NOT_ALLOWED"

    def __init__(self, origin: str) -> None:
        super().__init__(f"pages of {quoted(origin)} may not ask; see --http-cors", {"origin": origin})


def http_status(error: ServerError, own: Mapping[str, int] | None = None) -> int:
    """own: what a compatible service has instead, by reason."""
    return (own or {}).get(error.reason) or STATUSES_OF_REASONS.get(error.reason) or STATUSES[error.status]


def renamed(told: str, texts: str) -> str:
    """A message, or the path of a field, with a compatible service's name for the field with the texts."""
    return TEXTS.sub(texts, told)


def error_headers(error: ServerError) -> dict[str, str]:
    """What goes with it in whatever words."""
    headers = {}
    if error.retry_after_s is not None or isinstance(error, Unavailable):
        headers["retry-after"] = str(max(SHORTEST_RETRY_S, ceil(error.retry_after_s or 0)))
    if error.status == "UNAUTHENTICATED":
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = error.allowed
    return headers
