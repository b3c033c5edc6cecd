"""The fields of a request, in whichever of four ways they are sent: JSON, two kinds of forms, and the query."""

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser

from server.http.asked import Asked
from server.http.errors import InvalidField, UnsupportedMediaType

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
MOST_FIELDS = 1000

Fields = Mapping[str, Any]
"""Those of a form are texts, and lists of texts where they occur more than once."""


async def read_fields(asked: Asked, broken: str) -> Fields:
    """Those of the body, and those of the query that it does not have. Raises ServerError.

    broken: what is told of a body that is no JSON object or no form
    """
    body = await asked.body()
    try:
        query = _grouped(parse_qsl(str(asked.query), keep_blank_values=True, max_num_fields=MOST_FIELDS))
        return query | await _of_body(body, asked) if body else query
    except (ValueError, RecursionError, MultiPartException) as error:  # UnicodeError is a ValueError
        raise InvalidField("body", broken) from error


async def _of_body(body: bytes, asked: Asked) -> dict[str, Any]:
    match asked.media_type:
        case "application/json":
            return json_object(body)
        case "application/x-www-form-urlencoded":
            text = body.decode()
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
            return _grouped(pairs)
        case "multipart/form-data":
            return _grouped((await _multipart(body, asked)).multi_items())
        case _:
            kind = asked.headers.get("content-type", "")
            raise UnsupportedMediaType("content-type", kind, [JSON, FORM, MULTIPART])


def json_object(body: bytes) -> dict[str, Any]:
    """Raises ValueError or RecursionError for what is none, or has half of a character."""
    fields = json.loads(body.decode())
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    if b"\\u" in body:
        json.dumps(fields, ensure_ascii=False).encode()
    return fields


async def _multipart(body: bytes, asked: Asked) -> FormData:
    """Of UTF-8: the parser would take any codec that Python has, and some make half a character, or need minutes.

    Raises UnicodeError, MultiPartException, UnsupportedMediaType.
    """
    kind = asked.headers["content-type"]
    if parse_options_header(kind)[1].get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        raise UnsupportedMediaType("content-type", kind, [f"{MULTIPART}; charset=utf-8"])
    body.decode()  # all of it: files are refused

    async def parts() -> AsyncGenerator[bytes]:
        yield body

    parser = MultiPartParser(asked.headers, parts(), max_files=0, max_fields=MOST_FIELDS, max_part_size=len(body))
    return await parser.parse()


def _grouped(pairs: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            fields[name] = [*fields[name], value] if isinstance(fields[name], list) else [fields[name], value]
        else:
            fields[name] = value
    return fields
