"""Documents by HTTP: the bytes of a file in, and the bytes of a file out, or how far it is."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message
from starlette.responses import Response

from server.api.json.messages import event_of
from server.api.methods import Method
from server.api.scopes import scopes_of
from server.errors import quoted
from server.http.asked import Asked
from server.http.errors import InvalidField, UnsupportedMediaType
from server.http.events import MEDIA_TYPE, Event
from server.http.face import Route
from server.http.native import NATIVE

PATH = "/v1/document"
OFFICE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
MEDIA_TYPES: Mapping[str, str] = {
    "txt": "text/plain; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
    "po": "text/x-gettext-translation; charset=utf-8",
    "xliff": "application/xliff+xml",
    "docx": OFFICE,
    "odt": "application/vnd.oasis.opendocument.text",
}
"""What an answer says that it is. A page that comes back is for a file, and no browser is to show it as ours."""
FIELDS = "source", "target", "model"
"""Of the query."""


def document_route(methods: Iterable[Method]) -> Route:
    """The document comes back as it is, or for whoever accepts an event stream as its last event."""
    [method] = (method for method in methods if method.name == "TranslateDocument")

    async def events(asked: Asked) -> AsyncGenerator[Event]:
        async with aclosing(method.responses(await _request(method, asked))) as responses:
            async for response in responses:
                yield Event(*event_of(response))

    async def answer(asked: Asked) -> Response:
        document = (await whole_document(method, await _request(method, asked))).document
        kind = MEDIA_TYPES[asked.query["format"]]
        return Response(document, media_type=kind, headers={"content-disposition": "attachment"})

    def either(asked: Asked) -> Awaitable[Response] | AsyncGenerator[Event]:
        return events(asked) if MEDIA_TYPE in asked.headers.get("accept", "") else answer(asked)

    handler: Callable[[Asked], Any] = either
    name = "http.TranslationService/TranslateDocument"
    return Route("POST", PATH, name, scopes_of(method.path), NATIVE, handler)


async def _request(method: Method, asked: Asked) -> Message:
    """Raises InvalidField, also for what would be dropped silently, and UnsupportedMediaType for a form with a file."""
    if asked.media_type.startswith("multipart/"):
        kind = asked.headers["content-type"]
        raise UnsupportedMediaType("content-type", kind, ["the file alone, as curl --data-binary @FILE does"])
    for name, times in Counter(name for name, _ in asked.query.multi_items()).items():
        if name not in ("format", *FIELDS):
            known = ", ".join(("format", *FIELDS))
            raise InvalidField(name, f"{quoted(name)} is no field of the query; it may have {known}")
        if times > 1:
            raise InvalidField(name, f"the query has {times} times {name}; send it once")
    told = asked.query.get("format", "")
    if told not in MEDIA_TYPES:
        known = ", ".join(MEDIA_TYPES)
        raise InvalidField("format", f"format of the query is {told[:64]!r}; it must be one of {known}")
    return document_request(method, told, await asked.body(), *(asked.query.get(name, "") for name in FIELDS))


def document_request(
    method: Method, name: str, document: bytes, source: str = "", target: str = "", model: str = ""
) -> Message:
    """To translate a document of the format of that name between languages by their tags."""
    formats = method.request.DESCRIPTOR.fields_by_name["format"].enum_type
    assert formats is not None
    number = formats.values_by_name[f"DOCUMENT_FORMAT_{name.upper()}"].number
    languages = {"source_language_code": source, "target_language_code": target}
    return method.request(document=document, format=number, model=model, **languages)


async def whole_document(method: Method, request: Message) -> Any:
    """The TranslatedDocument. Raises ServerError."""
    async with aclosing(method.responses(request)) as responses:
        async for response in responses:
            last: Any = response
    return last.document
