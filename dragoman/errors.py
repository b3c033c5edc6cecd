"""What a call can fail with.

    DragomanError              any gRPC status without a class of its own; `code` tells which
    ├── InvalidArgument        a field is out of its range; `violations` names it. Fix the request
    ├── NotFound               the server has no such model or service
    ├── FailedPrecondition     the model does not do that, such as an encoder alone that is asked to translate
    ├── Unauthenticated        the server does not know who calls: the token is missing, or is no good
    ├── PermissionDenied       the caller may not do this
    ├── ResourceExhausted      a message is over the size limit, or the caller over its quota
    ├── DeadlineExceeded       no answer within `timeout_s`
    ├── Cancelled              the call was cancelled
    ├── Aborted                the server gave up, such as on a stream that nobody reads
    ├── Unavailable            overloaded or draining until the deadline; come back after `retry_delay_s`
    │   └── Unreachable        no Dragoman server answered at the target
    ├── Unimplemented          the server does not know this call
    └── Internal               a bug in the server, or a reply that breaks the API's contract

Servers follow AIP-193: every error carries a google.rpc.ErrorInfo with a stable `reason`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

M = TypeVar("M", bound=Message)

STATUS_DETAILS_KEY = "grpc-status-details-bin"
REQUEST_ID_KEY = "x-request-id"
_CONTENT = re.compile(r"\bcontents\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of the request that the server refused."""

    field: str
    """Path of the field, such as `decoding.num_beams`, or `contents[3]` for the fourth text of the call."""
    description: str


@dataclass(eq=False)
class DragomanError(Exception):
    """A call failed."""

    message: str
    """For people: what is wrong and what to do about it."""
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    """The gRPC status."""
    reason: str = ""
    """For programs: stable, such as `SOURCE_TOO_LONG`. Empty where the error does not come from a Dragoman server."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """More about the reason, such as the limit that was passed."""
    violations: tuple[FieldViolation, ...] = ()
    """The fields that were refused."""
    retry_delay_s: float | None = None
    """How long the server asks to wait before the next try."""
    request_id: str = ""
    """The name of the request in the server's log. Empty where no Dragoman server answered."""

    def __str__(self) -> str:
        return f"{self.message} ({self.reason or self.code.name})"


class InvalidArgument(DragomanError):
    """A field is out of its range; `violations` names it."""


class NotFound(DragomanError):
    """The server has no such model or service."""


class FailedPrecondition(DragomanError):
    """The model does not do that, such as an encoder alone that is asked to translate."""


class Unauthenticated(DragomanError):
    """The server does not know who calls: the token is missing, or is no good."""


class PermissionDenied(DragomanError):
    """The caller may not do this."""


class ResourceExhausted(DragomanError):
    """A message is over the size limit, or the caller over its quota."""


class DeadlineExceeded(DragomanError):
    """No answer within `timeout_s`."""


class Cancelled(DragomanError):
    """The call was cancelled."""


class Aborted(DragomanError):
    """The server gave up, such as on a stream that nobody reads."""


class Unavailable(DragomanError):
    """The server is overloaded or draining, as long as the deadline allowed to ask."""


class Unreachable(Unavailable):
    """No Dragoman server answered at the target: nothing listens there, the name is unknown, or TLS failed."""


class Unimplemented(DragomanError):
    """The server does not know this call."""


class Internal(DragomanError):
    """A bug in the server, or a reply that breaks the API's contract."""


_CLASSES: dict[grpc.StatusCode, type[DragomanError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.INTERNAL: Internal,
}


def is_of_text(error: DragomanError) -> bool:
    """Whether another text may fare better: the error is not about the server or the model, nor about an option."""
    if isinstance(error, InvalidArgument):
        fields = [violation.field for violation in error.violations]
        return not fields or any(field.startswith("content") for field in fields)
    of_all = Unavailable | NotFound | FailedPrecondition | Unauthenticated | PermissionDenied | Unimplemented
    return not isinstance(error, of_all)


@contextmanager
def rpc_errors(first: int = 0) -> Iterator[None]:
    """Turns a `grpc.RpcError` of the block, sync or async, into a `DragomanError`. `first`: see `from_rpc`."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc(error, first) from error


def from_rpc(error: grpc.RpcError, first: int = 0) -> DragomanError:
    """The error tree's view of a failed call.

    `first` is the index of the request's first text in the caller's list: the server knows only its own request.
    """
    code, status = error.code(), _status(error)
    info, retry = _detail(status, ErrorInfo()), _detail(status, RetryInfo())
    bad_request = _detail(status, BadRequest())
    return _class(code, info)(
        _renumber(status.message or error.details() or code.name, first),
        code,
        info.reason,
        dict(info.metadata),
        tuple(
            FieldViolation(_renumber(violation.field, first), _renumber(violation.description, first))
            for violation in bad_request.field_violations
        ),
        retry.retry_delay.ToNanoseconds() / 1e9 if retry.HasField("retry_delay") else None,
        next((value for key, value in _trailing(error) if key == REQUEST_ID_KEY and isinstance(value, str)), ""),
    )


def _class(code: grpc.StatusCode, info: ErrorInfo) -> type[DragomanError]:
    """A Dragoman server that refuses says why; without a reason, UNAVAILABLE comes from the way to it."""
    if code is grpc.StatusCode.UNAVAILABLE and not info.reason:
        return Unreachable
    return _CLASSES.get(code, DragomanError)


def _renumber(text: str, first: int) -> str:
    return _CONTENT.sub(lambda found: f"contents[{int(found[1]) + first}]", text)


def _status(error: grpc.RpcError) -> Status:
    """The google.rpc.Status sent along, or an empty one: a proxy on the way may have sent none, or nonsense."""
    for key, value in _trailing(error):
        if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
            try:
                return Status.FromString(value)
            except DecodeError:
                return Status()
    return Status()


def _trailing(error: grpc.RpcError) -> Iterable[tuple[str, str | bytes]]:
    """What came after the answer. Its items are pairs, of two different types for sync and async calls."""
    return cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ())


def _detail(status: Status, detail: M) -> M:
    """Fills `detail` from the status; it stays empty where the status has none of its kind."""
    for packed in status.details:
        if packed.Unpack(detail):
            break
    return detail
