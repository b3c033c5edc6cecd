"""DecodingOptions of the API and the declaration in models.decoding: the same options, nothing lost between."""

from typing import Any, get_type_hints

import pytest
from google.protobuf.descriptor import FieldDescriptor

from dragoman.v1 import decoding_pb2
from dragoman.v1.decoding_pb2 import EARLY_STOPPING_UNSPECIFIED, DecodingOptions
from models.decoding import OPTIONS, RANGES, TEXTS, WORDS, Bias, Decoding, Phrase, TokenIds
from server.api.decoding import ENUMS, message_of, options_of

FIELDS = {field.name: field for field in DecodingOptions.DESCRIPTOR.fields}
KINDS: dict[int, type] = {
    FieldDescriptor.TYPE_INT32: int,
    FieldDescriptor.TYPE_INT64: int,
    FieldDescriptor.TYPE_FLOAT: float,
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_STRING: str,
}


def test_the_api_has_the_declaredoptions_of() -> None:
    assert tuple(FIELDS) == OPTIONS


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_is_not_set_is_told_from_zero(name: str) -> None:
    field, declared = FIELDS[name], get_type_hints(Decoding)[name]
    assert field.has_presence or field.is_repeated
    if name in WORDS:
        assert declared in (TokenIds, tuple[TokenIds, ...], tuple[Bias, ...], tuple[Phrase, ...])
    elif name in TEXTS:
        assert declared == tuple[str, ...]
    else:
        assert field.enum_type or KINDS[field.type] is declared


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if not field.enum_type])
def test_every_number_has_a_range(name: str) -> None:
    assert name in RANGES or name in WORDS or KINDS[FIELDS[name].type] in (bool, str)


def test_there_and_back() -> None:
    """Each number is another one, so that none is taken for another."""
    chosen = {name: a_value(name, field) for name, field in FIELDS.items()}
    assert options_of(message_of(Decoding(**chosen))) == chosen


def a_value(name: str, field: FieldDescriptor) -> Any:
    ids = (field.number, 2, 3)
    if name == "sequence_bias":
        return ((ids, 0.7), ((4,), -1.0))
    if name == "must_exclude":
        return (ids, "a b", (4,))
    if name in TEXTS:
        return ("a b", "c")
    if name in WORDS:
        return (ids, (4,)) if field.message_type is not None and field.is_repeated else ids
    return list(ENUMS[field.enum_type.name].values())[-1] if field.enum_type else KINDS[field.type](field.number + 0.6)


def test_phrases_may_be_texts() -> None:
    phrase = decoding_pb2.Phrase
    wire = DecodingOptions(bad_words=[phrase(text="a b"), phrase()], target_prefix=phrase(text="c"))
    assert options_of(wire) == {"bad_words": ("a b", ()), "target_prefix": "c"}


@pytest.mark.parametrize("value", [value for value in ENUMS["EarlyStopping"].values() if value is not None])
def test_every_value_of_early_stopping(value: Any) -> None:
    assert options_of(message_of(Decoding(early_stopping=value)))["early_stopping"] is value


def test_what_is_not_set_is_left_to_the_model() -> None:
    assert options_of(DecodingOptions()) == {}
    assert options_of(DecodingOptions(early_stopping=EARLY_STOPPING_UNSPECIFIED)) == {}
