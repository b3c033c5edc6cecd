"""OpenAI's API (https://platform.openai.com/docs/api-reference/embeddings), for embeddings alone.

There are no chat completions: a prompt is no text to translate.
"""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from starlette.responses import Response

from models.encoding import Pooling
from server.catalog.catalog import Catalog
from server.errors import ServerError
from server.http.asked import Asked
from server.http.errors import InvalidField, UnsupportedMediaType, http_status, renamed
from server.http.face import Route
from server.http.fields import JSON, Fields, read_fields
from server.http.native import json_response
from server.identity.identity import Scope
from server.translation.encoding.embeddings import Embedding, EncodingOptions
from server.translation.translator import Translator

STATUSES = {"OVERLOADED": 429, "WOULD_BE_LATE": 429}
TYPES = {400: "invalid_request_error", 401: "invalid_request_error", 404: "invalid_request_error", 429: "requests"}
"""By status. Of others: server_error."""
CODES = {
    "INVALID_TOKEN": "invalid_api_key",
    "MODEL_NOT_FOUND": "model_not_found",
    "OVERLOADED": "rate_limit_exceeded",
    "QUOTA_EXCEEDED": "rate_limit_exceeded",
}
KNOWN = frozenset({"input", "model", "encoding_format", "dimensions", "user"})
BROKEN = "We could not parse the JSON body of your request."


class OpenAI:
    """Its route; as a `Dialect`, its keys and errors."""

    def __init__(self, models: Catalog[Translator]) -> None:
        self._models = models

    def routes(self) -> Iterator[Route]:
        """Its list of models is that of our own API."""
        yield Route("POST", "/v1/embeddings", "openai.EncodingService/Encode", [Scope.ENCODE], self, self.embeddings)

    async def authorization(self, asked: Asked) -> str | None:
        return asked.headers.get("authorization")

    def refusal(self, asked: Asked, error: ServerError) -> Response:
        status = http_status(error, STATUSES)
        kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        told = {
            "message": renamed(error.message, "input"),
            "type": kind,
            "param": error.field and renamed(error.field, "input"),
            "code": CODES.get(error.reason),
        }
        return json_response({"error": told}, status)

    async def embeddings(self, asked: Asked) -> Response:
        if asked.media_type != JSON:
            raise UnsupportedMediaType("content-type", asked.headers.get("content-type", ""), [JSON])
        fields = await read_fields(asked, BROKEN)
        texts, base64 = _texts(fields), _is_base64(fields)
        model = fields.get("model", "")
        if not isinstance(model, str):
            raise InvalidField("model", "model must be a string")
        translator = self._models.find(model)
        options = EncodingOptions(dimensions=_dimensions(fields), normalize=True)
        if Pooling.NONE in translator.model.encoding.poolings:  # one vector for each text, whatever the model does
            options = replace(options, poolings=(Pooling.MEAN,))
        found = await translator.encode(texts, options)
        tokens = sum(one.source_tokens for one in found)
        return json_response(
            {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": index, "embedding": _values(one, base64)}
                    for index, one in enumerate(found)
                ],
                "model": translator.model.name,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )


def _texts(fields: Fields) -> list[str]:
    unknown = sorted(fields.keys() - KNOWN)
    if unknown:
        raise InvalidField(unknown[0], f"Unrecognized request argument supplied: {unknown[0][:64]}")
    value: Any = fields.get("input")
    texts: list[str] = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidField("input", "input must be a string or an array of strings; arrays of tokens are not read")
    return texts


def _is_base64(fields: Fields) -> bool:
    match fields.get("encoding_format") or "float":
        case "float":
            return False
        case "base64":
            return True
        case _:
            raise InvalidField("encoding_format", "encoding_format must be 'float' or 'base64'")


def _dimensions(fields: Fields) -> int | None:
    dimensions = fields.get("dimensions")
    if dimensions is not None and (not isinstance(dimensions, int) or isinstance(dimensions, bool)):
        raise InvalidField("dimensions", "dimensions must be an integer")
    return dimensions


def _values(embedding: Embedding, base64: bool) -> Any:
    """base64: of single-precision numbers, little-endian."""
    values = embedding.vectors.data.astype("<f4", copy=False)
    return b64encode(values.tobytes()).decode() if base64 else [float(str(one)) for one in np.ravel(values)]
