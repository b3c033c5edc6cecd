"""DecodingOptions of the API and the declaration in models.decoding: the same options, nothing lost between."""

from typing import Any, get_type_hints

import pytest
from google.protobuf.descriptor import FieldDescriptor

from dragoman.v1.decoding_pb2 import EARLY_STOPPING_UNSPECIFIED, DecodingOptions
from models.decoding import OPTIONS, RANGES, Decoding
from server.grpc.service import ENUMS, _decoding, _options

FIELDS = {field.name: field for field in DecodingOptions.DESCRIPTOR.fields}
KINDS = {
    FieldDescriptor.TYPE_INT32: int,
    FieldDescriptor.TYPE_INT64: int,
    FieldDescriptor.TYPE_FLOAT: float,
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_STRING: str,
}


def test_the_api_has_the_declared_options() -> None:
    assert tuple(FIELDS) == OPTIONS


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_is_not_set_is_told_from_zero(name: str) -> None:
    field = FIELDS[name]
    assert field.has_presence
    assert field.enum_type or KINDS[field.type] is get_type_hints(Decoding)[name]


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if not field.enum_type])
def test_every_number_has_a_range(name: str) -> None:
    assert name in RANGES or KINDS[FIELDS[name].type] in (bool, str)


def test_there_and_back() -> None:
    """Each number is another one, so that none is taken for another."""
    chosen: dict[str, Any] = {
        name: list(ENUMS[field.enum_type.name].values())[-1]
        if field.enum_type
        else KINDS[field.type](field.number + 0.6)
        for name, field in FIELDS.items()
    }
    assert _options(_decoding(Decoding(**chosen))) == chosen


@pytest.mark.parametrize("value", [value for value in ENUMS["EarlyStopping"].values() if value is not None])
def test_every_value_of_early_stopping(value: Any) -> None:
    assert _options(_decoding(Decoding(early_stopping=value)))["early_stopping"] is value


def test_what_is_not_set_is_left_to_the_model() -> None:
    assert _options(DecodingOptions()) == {}
    assert _options(DecodingOptions(early_stopping=EARLY_STOPPING_UNSPECIFIED)) == {}
