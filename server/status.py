"""An error of `server.errors` as gRPC carries it: AIP-193, and gRFC A6 for the delay of retries."""

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from server.errors import ServerError

DOMAIN = "dragoman"
"""The domain of every ErrorInfo."""
DETAILS_KEY = "grpc-status-details-bin"
"""Trailing metadata: a serialized google.rpc.Status."""
PUSHBACK_KEY = "grpc-retry-pushback-ms"
"""Trailing metadata: when clients that retry by themselves are to do so."""


def status_code(error: ServerError) -> grpc.StatusCode:
    """The gRPC status of an error."""
    return grpc.StatusCode[error.status]


def trailing_metadata(error: ServerError) -> tuple[tuple[str, str | bytes], ...]:
    """What follows the status of an error: its details, and its retry delay where it has one."""
    number, _ = status_code(error).value
    status = Status(code=number, message=error.message)
    for detail in _details(error):
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    metadata: list[tuple[str, str | bytes]] = [(DETAILS_KEY, status.SerializeToString())]
    if error.retry_after_s is not None:
        metadata.append((PUSHBACK_KEY, str(round(error.retry_after_s * 1000))))
    return tuple(metadata)


def _details(error: ServerError) -> list[Message]:
    """Each type at most once, ErrorInfo always."""
    details: list[Message] = [ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)]
    if error.field is not None:
        violation = BadRequest.FieldViolation(field=error.field, description=error.message, reason=error.reason)
        details.append(BadRequest(field_violations=[violation]))
    if error.retry_after_s is not None:
        delay = Duration()
        delay.FromMilliseconds(round(error.retry_after_s * 1000))
        details.append(RetryInfo(retry_delay=delay))
    return details
