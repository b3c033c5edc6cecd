"""What the HTTP port has, for programs (OpenAPI 3.1) and for people (a page of curl), from the routes themselves."""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from shlex import quote
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from server.api.json.schemas import Schema, reference, schemas
from server.api.methods import Method
from server.http.asked import Asked
from server.http.documents import FIELDS, MEDIA_TYPES
from server.http.events import MEDIA_TYPE as EVENTS
from server.http.face import Route
from server.http.fields import JSON, MULTIPART
from server.http.native import NATIVE, json_response, path_of


class Form(dict[str, Any]):
    """A body that is multipart/form-data. Values that begin with @ are names of files."""


class Upload(dict[str, Any]):
    """The query of a request whose body is a file: what `server.http.documents` reads of it, where it is tried."""


EXAMPLES: dict[str, tuple[str, dict[str, Any] | None]] = {
    "/dragoman.v1.TranslationService/Translate": (
        "Translates texts.",
        {"contents": ["Good morning."], "decoding": {"numBeams": 4}},
    ),
    "/dragoman.v1.TranslationService/TranslateAndEncode": (
        "Translates texts and gives their vectors.",
        {"contents": ["Good morning."]},
    ),
    "/dragoman.v1.TranslationService/Score": (
        "Says how probable given translations are.",
        {"contents": [{"content": "Good morning.", "targets": ["Bom dia."]}]},
    ),
    "/v1/translate:stream": ("Translates a text and sends it as it is decoded.", {"content": "Good morning."}),
    "/v1/translatedocument:stream": (
        "Translates a document, in base64, and tells how far it is.",
        {"document": "R29vZCBtb3JuaW5nLg==", "format": "DOCUMENT_FORMAT_TXT", "targetLanguageCode": "pt"},
    ),
    "/v1/document": (
        "Translates the bytes of a file into bytes; or, for text/event-stream, tells how far it is.",
        Upload(format="md", target="pt"),
    ),
    "/dragoman.v1.EncodingService/Encode": ("Gives the vectors of texts.", {"contents": ["Good morning."]}),
    "/dragoman.v1.EncodingService/Classify": ("Gives labels to texts or tokens.", {"contents": ["Good morning."]}),
    "/dragoman.v1.ModelService/ListModels": ("Lists the models.", {}),
    "/dragoman.v1.ModelService/GetModel": ("Tells of one model.", {}),
    "/dragoman.v1.ModelService/Reload": ("Takes up a new version of a model.", {}),
    "/v1/models": ("Lists the models, in the shape of OpenAI's API.", None),
    "/v1/models/{name}": ("Tells of one model, in the same shape.", None),
    "/v1/embeddings": ("OpenAI: the vectors of texts.", {"input": "Good morning.", "model": ""}),
    "/translate": (
        "LibreTranslate: translates a text, or an array of texts.",
        {"q": "Good morning.", "source": "auto", "target": "pt", "alternatives": 2},
    ),
    "/detect": ("LibreTranslate: in which language a text is.", {"q": "Good morning."}),
    "/languages": ("LibreTranslate: the languages.", None),
    "/frontend/settings": ("LibreTranslate: what its page asks for.", None),
    "/spec": ("LibreTranslate: this document.", None),
    "/suggest": ("LibreTranslate: suggestions are disabled.", {}),
    "/translate_file": (
        "LibreTranslate: translates a file, and says where its translation is.",
        Form(file="@letter.md", source="auto", target="pt"),
    ),
    "/download_file/{name}": ("LibreTranslate: a file that was translated.", None),
    "/v2/translate": ("DeepL: translates texts.", {"text": ["Good morning."], "target_lang": "PT"}),
    "/v2/languages": ("DeepL: the languages.", None),
    "/v2/usage": ("DeepL: characters that were translated.", None),
    "/v2/glossaries": ("DeepL: there are no glossaries.", None),
    "/v2/glossary-language-pairs": ("DeepL: there are no glossaries.", None),
    "/v3/glossaries": ("DeepL: there are no glossaries.", None),
    "/health": ("Whether calls are answered.", None),
    "/ready": ("The same.", None),
    "/metrics": ("What Prometheus reads.", None),
    "/openapi.json": ("This document.", None),
    "/docs": ("All of this, for people.", None),
    "/": ("The playground, for a browser.", None),
}
"""By path: what it does, and a body to try. A method of proto/ that is not here is described by its messages alone."""


class Description:
    """Of all routes, its own included."""

    def __init__(self, version: str, methods: Sequence[Method]) -> None:
        self._version, self._methods = version, methods
        self._routes: Sequence[Route] = ()

    def of(self, routes: Iterable[Route]) -> Sequence[Route]:
        """The routes, and those that describe them."""

        async def document(asked: Asked) -> Response:
            return json_response(self.document())

        async def page(asked: Asked) -> Response:
            return Response(self.page(asked.base_url.removesuffix("/")), media_type="text/html")

        own = [
            Route("GET", path, "http.Pages/Get", [], NATIVE, handler, observed=False)
            for path, handler in (("/openapi.json", document), ("/docs", page))
        ]
        self._routes = [*routes, *own]
        return self._routes

    def document(self) -> dict[str, Any]:
        """OpenAPI 3.1."""
        messages = {path_of(method): method for method in self._methods}
        paths: dict[str, dict[str, Any]] = {}
        for route in self._routes:
            method = messages.get(route.path)
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, method)
        return {
            "openapi": "3.1.0",
            "info": {"title": "Dragoman", "version": self._version, "description": "docs/http.md says more."},
            "paths": paths,
            "components": {"schemas": schemas(self._methods)},
        }

    def page(self, url: str) -> str:
        """HTML without a script, for whoever finds this server there."""
        entries = "".join(_entry(route, url) for route in self._routes)
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Dragoman: HTTP</title>'
            '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="page.css"></head>'
            f"<body><main><h1>Dragoman {escape(self._version)}</h1>"
            '<p>What this port answers. For programs: <a href="openapi.json">openapi.json</a>.</p>'
            f"{entries}</main></body></html>"
        )


def _entry(route: Route, url: str) -> str:
    summary, body = EXAMPLES.get(route.path, (route.name, {} if route.method == "POST" else None))
    curl = f"curl {'-N ' if ':' in route.path else ''}{quote(url + route.path)}"
    if isinstance(body, Upload):
        curl = f"curl --data-binary @letter.md {quote(f'{url}{route.path}?{urlencode(body)}')}"
    elif isinstance(body, Form):
        curl += "".join(f" -F {quote(f'{name}={value}')}" for name, value in body.items())
    elif body is not None:
        curl += f" -H 'content-type: {JSON}' -d {quote(json.dumps(body, ensure_ascii=False))}"
    heading = f"{route.method} {route.path}"
    return f"<h2>{escape(heading)}</h2><p>{escape(summary)}</p><pre>{escape(curl)}</pre>"


def _operation(route: Route, method: Method | None) -> dict[str, Any]:
    summary, example = EXAMPLES.get(route.path, (route.name, {} if route.method == "POST" else None))
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "OK"}, "default": {"description": "An error, in the service's words"}},
    }
    request: Schema = {"type": "object"}
    if method is not None:
        request = reference(method.descriptor.input_type)
        answer: Schema = {"type": "string"} if method.streams else reference(method.descriptor.output_type)
        operation["responses"]["200"]["content"] = {EVENTS if method.streams else JSON: {"schema": answer}}
    if names := re.findall(r"{(\w+)}", route.path):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if isinstance(example, Form):
        binary: Schema = {"type": "string", "format": "binary"}
        properties = {name: binary if value.startswith("@") else {"type": "string"} for name, value in example.items()}
        operation["requestBody"] = {"content": {MULTIPART: {"schema": {"type": "object", "properties": properties}}}}
    elif isinstance(example, Upload):
        formats = {"name": "format", "in": "query", "required": True, "schema": {"enum": list(MEDIA_TYPES)}}
        fields = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in FIELDS]
        operation["parameters"] = [formats, *fields]
        operation["requestBody"] = {"content": {"application/octet-stream": {}}}
    elif example is not None:
        operation["requestBody"] = {"content": {JSON: {"schema": request, "example": example}}}
    return operation
