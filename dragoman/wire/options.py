"""Options of decoding that are more than a number: their plain values, to the wire and back."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from google.protobuf.descriptor import FieldDescriptor

from dragoman.v1 import decoding_pb2

EarlyStopping = bool | Literal["never"]
"""When beam search ends, as in Hugging Face `generate`."""

Phrase = str | Sequence[int]
"""Words of a target: as a text, or as the ids of its tokens."""

E = TypeVar("E")

ENUMS: dict[str, dict[Any, str]] = {
    "EarlyStopping": {
        False: "EARLY_STOPPING_HEURISTIC",
        True: "EARLY_STOPPING_FIRST_FINISHED",
        "never": "EARLY_STOPPING_NEVER",
    }
}
"""Enum -> plain value -> name on the wire. A plain value's type is the alias above that has the enum's name."""


def number(name: str, value: str, known: Mapping[str, E]) -> E:
    """The value of an enum. Raises ValueError for a name that it does not have."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, known))}")
    return known[value]


def sent(field: FieldDescriptor, value: Any) -> Any:
    """A plain value on the wire. Raises ValueError or TypeError for one that there is not."""
    if field.is_repeated and isinstance(value, str | bytes):
        raise TypeError(f"{value!r} is one text; a list of them is wanted")
    if field.message_type is not None:
        of_one = _sent_bias if field.message_type.name == "SequenceBias" else _sent_phrase
        return list(map(of_one, value)) if field.is_repeated else of_one(value)
    if field.is_repeated:
        return list(value)
    if field.enum_type is None:
        return value
    names = ENUMS[field.enum_type.name]
    if value not in names:
        raise ValueError(f"{value!r} is not one of {', '.join(map(repr, names))}")
    return field.enum_type.values_by_name[names[value]].number


def received(field: FieldDescriptor, value: Any) -> Any:
    """A plain value from the wire. One that this version of the client has no name for becomes the first it has."""
    if field.message_type is not None:
        of_one = _received_bias if field.message_type.name == "SequenceBias" else _received_phrase
        return tuple(map(of_one, value)) if field.is_repeated else of_one(value)
    if field.is_repeated:
        return tuple(value)
    if field.enum_type is None:
        return value
    plain = {field.enum_type.values_by_name[name].number: plain for plain, name in ENUMS[field.enum_type.name].items()}
    return plain.get(value, next(iter(plain.values())))


def _sent_phrase(phrase: Phrase) -> decoding_pb2.Phrase:
    if isinstance(phrase, str):
        return decoding_pb2.Phrase(text=phrase)
    if isinstance(phrase, bytes):  # a sequence of numbers, too
        raise TypeError(f"{phrase!r} is bytes; a text is a str")
    return decoding_pb2.Phrase(tokens=decoding_pb2.TokenIds(ids=phrase))


def _sent_bias(bias: tuple[Phrase, float]) -> decoding_pb2.SequenceBias:
    if not isinstance(bias, Sequence) or isinstance(bias, str) or len(bias) != 2:
        raise TypeError(f"{bias!r} is no pair; a list of (phrase, number) is wanted")
    return decoding_pb2.SequenceBias(phrase=_sent_phrase(bias[0]), bias=bias[1])


def _received_phrase(message: decoding_pb2.Phrase) -> Phrase:
    return message.text if message.WhichOneof("phrase") == "text" else tuple(message.tokens.ids)


def _received_bias(message: decoding_pb2.SequenceBias) -> tuple[Phrase, float]:
    return _received_phrase(message.phrase), message.bias
