"""The server cannot answer now, or its engine failed."""

from server.errors.error import ServerError
from server.errors.retry import apart

AGAIN_S = 1.0
"""Memory is free again when texts that are being decoded are done."""


class OutOfMemory(ServerError):
    """A text for which the device has no memory just now. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "OUT_OF_MEMORY"

    def __init__(self, source_tokens: int) -> None:
        message = f"the device has no memory for a text of {source_tokens} tokens now; send it later, or split it"
        super().__init__(message, {"source_tokens": source_tokens}, retry_after_s=apart(AGAIN_S))


class Unavailable(ServerError):
    """The same request may be answered later, or by another server. Expected."""

    status = "UNAVAILABLE"


class Overloaded(Unavailable):
    """The queue is full, or a caller's share of it."""

    reason = "OVERLOADED"

    def __init__(self, waiting: int, max_waiting: int, retry_after_s: float, share: int | None = None) -> None:
        """waiting: contents; with a share, those of the caller."""
        metadata = {"waiting": waiting, "max_waiting": max_waiting}
        if share is None:
            told = f"{waiting} contents would wait; the queue takes {max_waiting}"
        else:
            metadata["share"] = share
            told = f"{waiting} contents of this caller would wait; it may have {share} of {max_waiting} places just now"
        super().__init__(f"{told}: retry in {retry_after_s * 1000:.0f} ms", metadata, retry_after_s=retry_after_s)


class TooManyCalls(Unavailable):
    """Most calls of this caller are refused just now, and so is this one, before its request is read."""

    reason = "TOO_MANY_CALLS"

    def __init__(self, calls_per_s: float, taken_per_s: float, retry_after_s: float) -> None:
        message = (
            f"of {calls_per_s:.0f} such calls a second of this caller {taken_per_s:.0f} are taken just now: retry in "
            f"{retry_after_s * 1000:.0f} ms, or call less often"
        )
        numbers = {"calls_per_s": round(calls_per_s), "taken_per_s": round(taken_per_s)}
        super().__init__(message, numbers, retry_after_s=retry_after_s)


class RequestsTooLarge(Unavailable):
    """What is being answered would take too much memory with one request more."""

    reason = "REQUESTS_TOO_LARGE"

    def __init__(self, size_bytes: int, held_bytes: int, max_held_bytes: int, retry_after_s: float) -> None:
        message = (
            f"the request has {size_bytes} bytes, and requests of {held_bytes} bytes are being answered; there is room "
            f"for {max_held_bytes}: retry in {retry_after_s * 1000:.0f} ms, or send the texts in several calls"
        )
        numbers = {"size_bytes": size_bytes, "held_bytes": held_bytes, "max_held_bytes": max_held_bytes}
        super().__init__(message, numbers, retry_after_s=retry_after_s)


class TooManyWatchers(ServerError):
    """Health is watched by as many as may. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "TOO_MANY_WATCHERS"

    def __init__(self, watchers: int, most: int, of: str) -> None:
        """of: whose watchers these are, "this connection" or "the server"."""
        message = f"{of} has {watchers} calls of Health/Watch, and may have {most}: end some, or ask by Health/Check"
        super().__init__(message, {"watchers": watchers, "max_watchers": most})


class WouldBeLate(Unavailable):
    """The answer would come after the call's deadline: nothing is computed for nobody."""

    reason = "WOULD_BE_LATE"

    def __init__(self, seconds: float, left: float, retry_after_s: float | None = None) -> None:
        """`seconds`: that it may well take. left: of them until the deadline."""
        needed_ms, left_ms = (max(0, round(1000 * value)) for value in (seconds, left))
        retry = "" if retry_after_s is None else f" retry in {retry_after_s * 1000:.0f} ms, or"
        message = f"the answer may take {needed_ms} ms; {left_ms} ms are left:{retry} give the call a later deadline"
        super().__init__(message, {"needed_ms": needed_ms, "left_ms": left_ms}, retry_after_s=retry_after_s)


class Draining(Unavailable):
    """The server is shutting down."""

    reason = "DRAINING"

    def __init__(self) -> None:
        super().__init__("the server is shutting down; use another one")


class EngineStopped(Unavailable):
    """The engine failed before this request came."""

    reason = "ENGINE_STOPPED"

    def __init__(self) -> None:
        super().__init__(
            "the engine has failed too often and takes no more requests; start it anew, or use another server"
        )


class EngineFailed(ServerError):
    """The engine failed while it had this request.

    Not UNAVAILABLE: the request may be the cause, and clients would take it to the next server.
    """

    status = "INTERNAL"
    reason = "ENGINE_FAILED"

    def __init__(self) -> None:
        super().__init__("the server's engine failed while it worked on this request")


class Quarantined(ServerError):
    """The engine has failed twice with this text, the second time with nothing else on board.

    Not UNAVAILABLE: clients would take it to the next server.
    """

    status = "INTERNAL"
    reason = "QUARANTINED"

    def __init__(self) -> None:
        super().__init__(
            "the server's engine has failed twice with this text, and takes it no more; another text may do"
        )


class NotFinite(ServerError):
    """The model computes no numbers for this text. The others that share its steps are answered."""

    status = "INTERNAL"
    reason = "NOT_FINITE"

    def __init__(self) -> None:
        super().__init__("the model's numbers for this text are not finite; another text may do")


class InternalError(ServerError):
    """Unexpected: a defect of the server. Its log has the traceback."""

    status = "INTERNAL"
    reason = "INTERNAL"

    def __init__(self) -> None:
        super().__init__("the server has a defect; its log says more")
