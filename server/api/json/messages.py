"""The messages of the API as JSON (https://protobuf.dev/programming-guides/json/), and errors as JSON has them."""

from base64 import b64encode
from typing import Any

from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import DecodeError, Message

from server.api.methods import Method
from server.api.rich_errors import rich_error
from server.errors import InvalidMessage, ServerError


def from_json(method: Method, body: bytes) -> Message:
    """The request of a method. Raises InvalidMessage, also for fields that the message does not have."""
    try:
        text = body.decode()
        if not text.lstrip().startswith("{"):  # Parse takes an empty list, or an empty string, for an empty message
            raise ParseError("it does not begin as an object of JSON does, with {")
        return Parse(text, method.request())
    except (ParseError, ValueError, RecursionError) as error:  # UnicodeError is a ValueError
        raise InvalidMessage(method.path, len(body), _why(error)) from error


def from_binary(method: Method, body: bytes) -> Message:
    """The same of its binary encoding. Raises InvalidMessage."""
    try:
        return method.request.FromString(body)
    except DecodeError as error:
        raise InvalidMessage(method.path, len(body)) from error


def to_json(message: Message) -> dict[str, Any]:
    """As ProtoJSON has it: names in camel case, default values left out."""
    written: dict[str, Any] = MessageToDict(message)
    return written


def event_of(message: Message) -> tuple[str, dict[str, Any]]:
    """A response of a stream: which of its kinds it is, and what it says."""
    [kinds] = message.DESCRIPTOR.oneofs
    name = message.WhichOneof(kinds.name)
    value = getattr(message, name)
    return (name, to_json(value)) if isinstance(value, Message) else (name.removeprefix("text_"), {"text": value})


def error_json(error: ServerError) -> dict[str, Any]:
    """A google.rpc.Status, as Envoy writes it."""
    return to_json(rich_error(error))


def connect_error(error: ServerError) -> dict[str, Any]:
    """As Connect writes it (https://connectrpc.com/docs/protocol/#error-end-stream)."""
    details = [
        {"type": detail.type_url.rpartition("/")[2], "value": b64encode(detail.value).rstrip(b"=").decode()}
        for detail in rich_error(error).details
    ]
    return {"code": error.status.lower(), "message": error.message, "details": details}


def _why(error: Exception) -> str:
    """What it repeats of the request may be half a character, which no answer can have."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error).encode(errors="backslashreplace").decode()
