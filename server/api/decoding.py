"""The options of decoding: protobuf to the types of `models.decoding` and back. The names are the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from dragoman.v1 import decoding_pb2
from models.decoding import OPTIONS, Decoding, Options, Phrase
from server.errors import OptionOutOfRange

ENUMS: dict[str, dict[int, object]] = {
    "EarlyStopping": {
        decoding_pb2.EARLY_STOPPING_UNSPECIFIED: None,
        decoding_pb2.EARLY_STOPPING_HEURISTIC: False,
        decoding_pb2.EARLY_STOPPING_FIRST_FINISHED: True,
        decoding_pb2.EARLY_STOPPING_NEVER: "never",
    }
}
"""The values of the enums that options have. None: the model's default."""


def options_of(wire: decoding_pb2.DecodingOptions) -> Options:
    """What is set; phrases may be texts."""
    options = {field.name: _read(field, value) for field, value in wire.ListFields()}
    return {name: value for name, value in options.items() if value is not None}


def message_of(decoding: Decoding) -> decoding_pb2.DecodingOptions:
    """Every option."""
    fields = decoding_pb2.DecodingOptions.DESCRIPTOR.fields_by_name
    return decoding_pb2.DecodingOptions(
        **{name: _written(fields[name], value) for name in OPTIONS if (value := getattr(decoding, name)) != ()}
    )


def _read(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        read = MESSAGES[field.message_type.name]
        return tuple(map(read, value)) if field.is_repeated else read(value)
    if field.is_repeated:
        return tuple(value)
    if field.enum_type is None:
        return _shortest_decimal(value) if field.type == FieldDescriptor.TYPE_FLOAT else value
    values = ENUMS[field.enum_type.name]
    if value not in values:
        raise OptionOutOfRange(f"decoding.{field.name}", value, min(values), max(values))
    return values[value]


def _phrase(wire: decoding_pb2.Phrase) -> Phrase:
    return wire.text if wire.WhichOneof("phrase") == "text" else tuple(wire.tokens.ids)


def _bias(wire: decoding_pb2.SequenceBias) -> tuple[Phrase, float]:
    return _phrase(wire.phrase), _shortest_decimal(wire.bias)


MESSAGES: dict[str, Callable[[Any], Any]] = {"Phrase": _phrase, "SequenceBias": _bias}
"""What reads the messages that options have."""


def _written(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        [value] = (number for number, plain in ENUMS[field.enum_type.name].items() if plain == value)
    elif field.message_type is not None:
        of_one = _bias_message if field.message_type.name == "SequenceBias" else _phrase_message
        return [of_one(one) for one in value] if field.is_repeated else of_one(value)
    return value


def _phrase_message(phrase: Phrase) -> decoding_pb2.Phrase:
    if isinstance(phrase, str):
        return decoding_pb2.Phrase(text=phrase)
    return decoding_pb2.Phrase(tokens=decoding_pb2.TokenIds(ids=phrase))


def _bias_message(bias: tuple[tuple[int, ...], float]) -> decoding_pb2.SequenceBias:
    return decoding_pb2.SequenceBias(phrase=_phrase_message(bias[0]), bias=bias[1])


def _shortest_decimal(value: float) -> float:
    """What the caller wrote: 0.6 and not 0.6000000238418579, the single-precision number that came over the wire."""
    return float(str(np.float32(value)))
