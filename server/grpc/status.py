"""What gRPC carries after an answer: how the call went; an error by AIP-193, and by gRFC A6 when to come again."""

import grpc

from server.api.rich_errors import rich_error
from server.errors import ServerError
from server.telemetry.calls import REQUEST_ID_KEY, TIMING_KEY, Call, server_timing

DETAILS_KEY = "grpc-status-details-bin"
"""Trailing metadata: a serialized google.rpc.Status."""
PUSHBACK_KEY = "grpc-retry-pushback-ms"
"""Trailing metadata: when clients that retry by themselves are to do so."""

Metadata = tuple[tuple[str, str | bytes], ...]


def status_code(error: ServerError) -> grpc.StatusCode:
    """The gRPC status of an error."""
    return grpc.StatusCode[error.status]


def call_metadata(call: Call) -> Metadata:
    """What follows every answer."""
    return ((REQUEST_ID_KEY, call.request_id), (TIMING_KEY, server_timing(call, call.seconds)))


def error_metadata(error: ServerError) -> Metadata:
    """What follows the status of an error: its details, and its retry delay where it has one."""
    metadata: list[tuple[str, str | bytes]] = [(DETAILS_KEY, rich_error(error).SerializeToString())]
    if error.retry_after_s is not None:
        metadata.append((PUSHBACK_KEY, str(round(error.retry_after_s * 1000))))
    return tuple(metadata)
