"""What messages look like as JSON, for those who have no proto/: JSON Schema 2020-12, from the descriptors."""

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from server.api.methods import Method

Schema = dict[str, Any]
WELL_KNOWN: dict[str, Schema] = {
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$", "examples": ["0.012s"]},
}
"""What ProtoJSON writes otherwise than as an object."""
FLOAT: Schema = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
INTEGER_64: Schema = {"type": "string", "pattern": "^-?[0-9]+$"}
"""JSON's numbers have no room for them."""
SCALARS: dict[int, Schema] = {
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer"},
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer", "minimum": 0},
    FieldDescriptor.CPPTYPE_INT64: INTEGER_64,
    FieldDescriptor.CPPTYPE_UINT64: INTEGER_64,
    FieldDescriptor.CPPTYPE_FLOAT: FLOAT,
    FieldDescriptor.CPPTYPE_DOUBLE: FLOAT,
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_STRING: {"type": "string"},
}


def schemas(methods: Iterable[Method]) -> dict[str, Schema]:
    """By name, of all messages that the methods take and give."""
    found: dict[str, Descriptor] = {}
    for method in methods:
        for message in (method.descriptor.input_type, method.descriptor.output_type):
            _collect(message, found)
    return {message.name: _object(message) for message in found.values()}


def reference(message: Descriptor) -> Schema:
    """Stands for the schema of a message, where all are in `components` of an OpenAPI document."""
    return WELL_KNOWN.get(message.full_name) or {"$ref": f"#/components/schemas/{message.name}"}


def _collect(message: Descriptor, found: dict[str, Descriptor]) -> None:
    if message.full_name in found or message.full_name in WELL_KNOWN:
        return
    if not message.GetOptions().map_entry:
        found[message.full_name] = message
    for field in message.fields:
        if field.message_type is not None:
            _collect(field.message_type, found)


def _object(message: Descriptor) -> Schema:
    return {
        "type": "object",
        "properties": {field.json_name: _of_field(field) for field in message.fields},
        "additionalProperties": False,
    }


def _of_field(field: FieldDescriptor) -> Schema:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _of_value(message.fields_by_name["value"])}
    return {"type": "array", "items": _of_value(field)} if field.is_repeated else _of_value(field)


def _of_value(field: FieldDescriptor) -> Schema:
    if field.message_type is not None:
        return reference(field.message_type)
    if field.enum_type is not None:
        return {"enum": [value.name for value in field.enum_type.values]}
    if field.type == FieldDescriptor.TYPE_BYTES:
        return {"type": "string", "contentEncoding": "base64"}
    return SCALARS[field.cpp_type]
