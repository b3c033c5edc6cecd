"""Our own API by HTTP: every method of proto/ as JSON, its streams as events, and what it serves and measures."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message
from starlette.responses import Response

from server.api.json.messages import connect_error, error_json, event_of, from_binary, from_json, to_json
from server.api.methods import Method
from server.api.scopes import scopes_of
from server.errors import ServerError
from server.http.asked import Asked
from server.http.errors import UnsupportedMediaType, http_status
from server.http.events import Event
from server.http.face import Dialect, Route
from server.http.fields import JSON
from server.identity.identity import Scope
from server.telemetry.exposition.page import CONTENT_TYPES, OPENMETRICS

BINARY = "application/proto"
INLINE_BYTES = 64 * 1024
"""Larger messages are read and written on another thread: the event loop would stand still for milliseconds."""


class Native:
    """Our own words, or those of Connect."""

    async def authorization(self, asked: Asked) -> str | None:
        return asked.headers.get("authorization")

    def refusal(self, asked: Asked, error: ServerError) -> Response:
        told = connect_error(error) if asked.headers.get("connect-protocol-version") == "1" else error_json(error)
        return json_response(told, http_status(error))


NATIVE: Dialect = Native()


def json_response(content: Any, status: int = 200) -> Response:
    """With characters as they are."""
    return Response(json.dumps(content, ensure_ascii=False, separators=(",", ":")), status, media_type=JSON)


def path_of(method: Method) -> str:
    """/SERVICE/METHOD, or of one that streams /v1/METHOD:stream."""
    if method.streams:
        return f"/v1/{method.name.removeprefix('Stream').lower()}:stream"
    return f"/{method.path}"


def method_routes(methods: Iterable[Method]) -> Iterator[Route]:
    """A route for every method of the API."""
    for method in methods:
        service = method.service.rpartition(".")[2]
        handler: Callable[[Asked], Any] = _streaming(method) if method.streams else _unary(method)
        yield Route("POST", path_of(method), f"http.{service}/{method.name}", scopes_of(method.path), NATIVE, handler)


def models_routes(methods: Iterable[Method]) -> Iterator[Route]:
    """What is served, all of it and one by its name, in the shape of OpenAI's API, with ours inside."""
    asked_for = {method.name: method for method in methods if method.name in ("ListModels", "GetModel")}
    list_models, get_model = asked_for["ListModels"], asked_for["GetModel"]
    fixed = {"object": "model", "created": round(time.time()), "owned_by": "dragoman"}

    def shaped(model: Any) -> Any:
        return {"id": model["name"], **fixed, "dragoman": model}

    async def models(asked: Asked) -> Response:
        listed = to_json(await list_models.answer(list_models.request()))["models"]
        return json_response({"object": "list", "data": [shaped(model) for model in listed]})

    async def model(asked: Asked) -> Response:
        found = await get_model.answer(get_model.request(name=asked.path_parts["name"]))
        return json_response(shaped(to_json(found)["model"]))

    pages = (("/v1/models", list_models, models), ("/v1/models/{name}", get_model, model))
    for path, method, page in pages:
        yield Route("GET", path, f"http.ModelService/{method.name}", scopes_of(method.path), NATIVE, page)


def metrics_route(page: Callable[[bool], Awaitable[bytes]]) -> Route:
    """What Prometheus reads on its own port. page: see MetricsEndpoint."""

    async def metrics(asked: Asked) -> Response:
        openmetrics = OPENMETRICS in asked.headers.get("accept", "")
        return Response(await page(openmetrics), headers={"content-type": CONTENT_TYPES[openmetrics]})

    return Route("GET", "/metrics", "http.Metrics/Page", [Scope.MODELS], NATIVE, metrics, observed=False)


def health_routes(state: Callable[[], str]) -> Iterator[Route]:
    """state: "ok", or why calls are not answered."""

    async def health(asked: Asked) -> Response:
        now = state()
        return json_response({"status": now}, 200 if now == "ok" else 503)

    for path in ("/health", "/ready"):
        yield Route("GET", path, "http.Health/Check", [], NATIVE, health, observed=False)


def _unary(method: Method) -> Callable[[Asked], Awaitable[Response]]:
    async def answer(asked: Asked) -> Response:
        response = await method.answer(await _request(method, asked))
        if asked.media_type == BINARY:
            return Response(response.SerializeToString(), media_type=BINARY)
        if response.ByteSize() <= INLINE_BYTES:
            return json_response(to_json(response))
        return await asyncio.to_thread(lambda: json_response(to_json(response)))

    return answer


def _streaming(method: Method) -> Callable[[Asked], AsyncGenerator[Event]]:
    async def events(asked: Asked) -> AsyncGenerator[Event]:
        async with aclosing(method.responses(await _request(method, asked, [JSON]))) as responses:
            async for response in responses:
                yield Event(*event_of(response))

    return events


async def _request(method: Method, asked: Asked, media_types: Iterable[str] = (JSON, BINARY)) -> Message:
    """Raises UnsupportedMediaType, also for what a page of another origin may send without a browser's asking us."""
    body = await asked.body()
    if asked.media_type not in media_types:
        raise UnsupportedMediaType("content-type", asked.headers.get("content-type", ""), media_types)
    read = from_binary if asked.media_type == BINARY else from_json
    return read(method, body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(read, method, body)
