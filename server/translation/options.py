"""The choices that a caller may leave open, and what becomes of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from models.decoding import Decoding, EarlyStopping
from models.languages import lookup
from server.catalog.served_model import ServedModel
from server.errors import LanguageNotSupported, ModelNotFound, OptionOutOfRange

LENGTH_PENALTY = (-10.0, 10.0)
"""Beyond it, scores overflow or become equal."""


@dataclass(frozen=True, slots=True)
class Route:
    """Which model, from which language into which. Empty: the default, or the only one there is."""

    model: str = ""
    source_language: str = ""
    target_language: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """How to decode. None: the model's default."""

    num_beams: int | None = None
    num_return_sequences: int | None = None
    max_new_tokens: int | None = None
    length_penalty: float | None = None
    early_stopping: EarlyStopping | None = None


def check_model(name: str, model: ServedModel, field: str = "model") -> None:
    """Raises ModelNotFound unless the name is the model's, or empty."""
    if name not in ("", model.name):
        raise ModelNotFound(field, name, [model.name])


def check_route(route: Route, model: ServedModel) -> None:
    """Raises ModelNotFound or LanguageNotSupported."""
    check_model(route.model, model)
    _check_language("source_language_code", route.source_language, model.source_languages)
    _check_language("target_language_code", route.target_language, model.target_languages)


def resolve(options: Options, model: ServedModel) -> Decoding:
    """Fills in what is left open. Raises OptionOutOfRange."""
    defaults = model.defaults
    num_beams = _integer("num_beams", options.num_beams, defaults.num_beams, model.max_beams)
    early_stopping = options.early_stopping
    return Decoding(
        num_beams=num_beams,
        num_return_sequences=_integer(
            "num_return_sequences", options.num_return_sequences, defaults.num_return_sequences, num_beams, "num_beams"
        ),
        max_new_tokens=_integer(
            "max_new_tokens", options.max_new_tokens, defaults.max_new_tokens, model.max_new_tokens
        ),
        length_penalty=_length_penalty(options.length_penalty, defaults.length_penalty),
        early_stopping=defaults.early_stopping if early_stopping is None else early_stopping,
    )


def _check_language(field: str, tag: str, supported: Sequence[str]) -> None:
    only_one = not tag and len(supported) == 1
    if not only_one and lookup(tag, supported) is None:
        raise LanguageNotSupported(field, tag, supported)


def _integer(name: str, value: int | None, default: int, most: int, limit: str = "") -> int:
    if value is None:
        return default
    if not 1 <= value <= most:
        raise OptionOutOfRange(f"decoding.{name}", value, 1, most, limit and f", which is {limit}")
    return value


def _length_penalty(value: float | None, default: float) -> float:
    if value is None:
        return default
    low, high = LENGTH_PENALTY
    if not math.isfinite(value):
        raise OptionOutOfRange("decoding.length_penalty", value, low, high, " and finite")
    if not low <= value <= high:
        raise OptionOutOfRange("decoding.length_penalty", value, low, high)
    return value
