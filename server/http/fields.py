"""The fields of a request, in whichever of four ways they are sent: JSON, two kinds of forms, and the query."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from server.http.asked import Asked
from server.http.errors import InvalidField, UnsupportedMediaType

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
MOST_FIELDS = 1000

Fields = Mapping[str, Any]
"""Those of a form are texts or files, and lists of them where they occur more than once."""


@dataclass(frozen=True, slots=True)
class File:
    """One in a form."""

    name: str
    """As the caller says: it may be anything."""
    content: bytes


async def read_fields(asked: Asked, broken: str, files: int = 0) -> Fields:
    """Those of the body, and those of the query that it does not have. Raises ServerError.

    broken: what is told of a body that is no JSON object or no form
    files: most that a form may have
    """
    body = await asked.body()
    try:
        query = _grouped(parse_qsl(str(asked.query), keep_blank_values=True, max_num_fields=MOST_FIELDS))
        return query | await _of_body(body, asked, files) if body else query
    except (ValueError, RecursionError, MultiPartException) as error:  # UnicodeError is a ValueError
        raise InvalidField("body", broken) from error


async def _of_body(body: bytes, asked: Asked, files: int) -> dict[str, Any]:
    match asked.media_type:
        case "application/json":
            return json_object(body)
        case "application/x-www-form-urlencoded":
            text = body.decode()
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
            return _grouped(pairs)
        case "multipart/form-data":
            return _grouped(await _multipart(body, asked, files))
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


async def _multipart(body: bytes, asked: Asked, files: int) -> Sequence[tuple[str, str | File]]:
    """Of UTF-8: the parser would take any codec that Python has, and some make half a character, or need minutes.

    Raises UnicodeError, MultiPartException, UnsupportedMediaType.
    """
    kind = asked.headers["content-type"]
    if parse_options_header(kind)[1].get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        raise UnsupportedMediaType("content-type", kind, [f"{MULTIPART}; charset=utf-8"])
    if not files:
        body.decode()  # all of it

    async def parts() -> AsyncGenerator[bytes]:
        yield body

    bounds = {"max_files": files, "max_fields": MOST_FIELDS, "max_part_size": len(body)}
    parser = MultiPartParser(asked.headers, parts(), **bounds)
    parser.spool_max_size = 0  # which is no bound: a file never goes to a disk
    try:
        form = await parser.parse()
        return [(name, await _held(value)) for name, value in form.multi_items()]
    finally:
        for file in parser._files_to_close_on_error:  # those of a form that breaks off are in no FormData
            file.close()


async def _held(value: str | UploadFile) -> str | File:
    return value if isinstance(value, str) else File(value.filename or "", await value.read())


def _grouped(pairs: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            fields[name] = [*fields[name], value] if isinstance(fields[name], list) else [fields[name], value]
        else:
            fields[name] = value
    return fields
