"""The parameters of a request: options of decoding and encoding by their names, and what Triton's clients send."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from models.decoding import Decoding, EarlyStopping, Options
from server.errors import quoted
from server.kserve.errors import InvalidParameter
from server.kserve.v2.inference_pb2 import InferParameter
from server.translation.encoding.embeddings import EncodingOptions
from server.translation.options import Route

IGNORED = frozenset({"priority", "timeout"})
"""That clients of Triton send, and that change nothing here; a deadline of the call does."""
IGNORED_PREFIXES = ("sequence_", "triton_")
WITHOUT_OUTPUT = frozenset({"with_tokens", "with_alignment", "with_attention"})
"""Options whose results no tensor has room for."""
NEVER = "never"

Value = bool | int | float | str

DECODING: Mapping[str, Any] = {
    name: kind
    for name, kind in get_type_hints(Decoding).items()
    if kind in (bool, int, float, EarlyStopping) and name not in WITHOUT_OUTPUT
}
"""Options of decoding that are one value."""
TRANSLATING: Mapping[str, Any] = {"source_language": str, "target_language": str, "prompt": str, "no_cache": bool}
ENCODING: Mapping[str, Any] = {"normalize": bool, "dimensions": int, "truncate": bool, "prompt": str}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the parameters of a request for a translation say."""

    route: Route
    options: Options
    no_cache: bool
    prompt: str | None


def of_translation(parameters: Mapping[str, InferParameter]) -> Asked:
    """Raises InvalidParameter."""
    values = _values(parameters, {**DECODING, **TRANSLATING})
    route = Route(values.pop("source_language", ""), values.pop("target_language", ""))
    return Asked(route, no_cache=values.pop("no_cache", False), prompt=values.pop("prompt", None), options=values)


def of_encoding(parameters: Mapping[str, InferParameter]) -> EncodingOptions:
    """Raises InvalidParameter."""
    return EncodingOptions(**_values(parameters, ENCODING))


def _values(parameters: Mapping[str, InferParameter], known: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _value(name, parameters[name], known)
        for name in sorted(parameters)
        if name not in IGNORED and not name.startswith(IGNORED_PREFIXES)
    }


def _value(name: str, parameter: InferParameter, known: Mapping[str, Any]) -> Value:
    field = f"parameters[{quoted(name)}]"
    if name not in known:
        raise InvalidParameter(field, f"is not known; the model takes {_listed(known)}")
    kind = parameter.WhichOneof("parameter_choice")
    if kind is None:
        raise InvalidParameter(field, "has no value; leave it out")
    value: Value = getattr(parameter, kind)
    wanted = known[name]
    if wanted is float and type(value) is int:
        return float(value)
    kinds = (bool, NEVER) if wanted is EarlyStopping else (wanted,)
    if type(value) not in kinds and value not in kinds:
        takes = f"bool or {quoted(NEVER)}" if wanted is EarlyStopping else wanted.__name__
        raise InvalidParameter(field, f"is {quoted(str(value))}, of type {type(value).__name__}; it must be {takes}")
    return value


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
