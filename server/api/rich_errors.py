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


def rich_error(error: ServerError) -> Status:
    """Each type of detail at most once, ErrorInfo always."""
    status = Status(code=Code.Value(error.status), message=error.message)
    for detail in _details(error):
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _details(error: ServerError) -> list[Message]:
    details: list[Message] = [ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)]
    if error.field is not None:
        violation = BadRequest.FieldViolation(field=error.field, description=error.message, reason=error.reason)
        details.append(BadRequest(field_violations=[violation]))
    if error.retry_after_s is not None:
        delay = Duration()
        delay.FromMilliseconds(round(error.retry_after_s * 1000))
        details.append(RetryInfo(retry_delay=delay))
    return details
