"""What callers are told of an error, by AIP-193: a google.rpc.Status with its details, in whatever a face sends it."""

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from server.errors import ServerError

DOMAIN = "dragoman"
"""The domain of every ErrorInfo."""
CODES = dict(Code.items())
TYPES: dict[type[Message], str] = {
    kind: f"type.googleapis.com/{kind.DESCRIPTOR.full_name}" for kind in (ErrorInfo, BadRequest, RetryInfo)
}
"""What an Any calls them. Put together once: `Any.Pack` and `Code.Value` take a fifth of an error's details."""


def rich_error(error: ServerError) -> Status:
    """Each type of detail at most once, ErrorInfo always."""
    packed = [AnyMessage(type_url=TYPES[type(one)], value=one.SerializeToString()) for one in _details(error)]
    return Status(code=CODES[error.status], message=error.message, details=packed)


def _details(error: ServerError) -> list[Message]:
    details: list[Message] = [ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)]
    if error.field is not None:
        violation = BadRequest.FieldViolation(field=error.field, description=error.message, reason=error.reason)
        details.append(BadRequest(field_violations=[violation]))
    if error.retry_after_s is not None:
        seconds, milliseconds = divmod(round(error.retry_after_s * 1000), 1000)
        details.append(RetryInfo(retry_delay=Duration(seconds=seconds, nanos=milliseconds * 1_000_000)))
    return details
