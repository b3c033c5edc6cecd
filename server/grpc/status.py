"""What gRPC carries after an answer: how the call went; an error by AIP-193, and by gRFC A6 when to come again."""

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from server.errors import ServerError
from server.telemetry.calls import REQUEST_ID_KEY, Call, server_timing

DOMAIN = "dragoman"
"""The domain of every ErrorInfo."""
DETAILS_KEY = "grpc-status-details-bin"
"""Trailing metadata: a serialized google.rpc.Status."""
PUSHBACK_KEY = "grpc-retry-pushback-ms"
"""Trailing metadata: when clients that retry by themselves are to do so."""


TIMING_KEY = "server-timing"
"""Trailing metadata: where the time of the call went (W3C Server Timing)."""

Metadata = tuple[tuple[str, str | bytes], ...]


def status_code(error: ServerError) -> grpc.StatusCode:
    """The gRPC status of an error."""
    return grpc.StatusCode[error.status]


def call_metadata(call: Call) -> Metadata:
    """What follows every answer."""
    return ((REQUEST_ID_KEY, call.request_id), (TIMING_KEY, server_timing(call, call.seconds)))


def error_metadata(error: ServerError) -> Metadata:
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
