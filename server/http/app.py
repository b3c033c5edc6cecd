"""The application behind the HTTP port: what answers at which path."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path_
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from server.api.documents import Documents
from server.api.methods import Method
from server.catalog.catalog import Catalog
from server.http.asked import Asked
from server.http.compatible.deepl import DeepL
from server.http.compatible.detection import Ranking
from server.http.compatible.libretranslate import LibreTranslate
from server.http.compatible.openai import OpenAI
from server.http.compatible.texts import Texts
from server.http.described import Description
from server.http.documents import document_route
from server.http.errors import PathNotFound
from server.http.face import Desk, Endpoint, Route, reply
from server.http.guard import Guard
from server.http.native import NATIVE, health_routes, json_response, method_routes, metrics_route, models_routes
from server.telemetry.calls import REQUEST_ID_KEY, TIMING_KEY
from server.traffic.traffic import Traffic
from server.translation.translator import Translator

PAGE = Path(__file__).parent / "page"
MEDIA_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript"}


@dataclass(frozen=True)
class Served:
    """What the routes are of."""

    models: Catalog[Translator]
    methods: Sequence[Method]
    documents: Documents
    detector: Callable[[tuple[str, ...]], Ranking]
    """Loads what tells these languages apart."""
    health: Callable[[], str]
    """"ok", or why calls are not answered."""
    metrics: Callable[[bool], Awaitable[bytes]]
    """The page of Prometheus; of OpenMetrics, if it is told so."""
    keys: bool
    """Callers need one."""
    version: str
    grpc_port: int


def application(served: Served, desk: Desk, hosts: Iterable[str], origins: Sequence[str]) -> ASGIApp:
    """hosts: names that are answered for; none: any. origins: whose pages may ask, beside our own."""
    routes = sorted(all_routes(served), key=attrgetter("path"))
    endpoints = {path: Endpoint(desk, list(group)) for path, group in groupby(routes, attrgetter("path"))}
    app: ASGIApp = Paths(endpoints, Nothing(desk.traffic))
    if origins:
        exposed = [REQUEST_ID_KEY, TIMING_KEY, "retry-after"]
        app = CORSMiddleware(
            app, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=exposed
        )
    return Guard(app, desk.traffic, list(hosts), origins)


def all_routes(served: Served) -> Sequence[Route]:
    """Of every service."""
    description = Description(served.version, served.methods)
    return [*description.of([*_routes(served, description)]), *_parts_of_pages(served.grpc_port)]


def _routes(served: Served, description: Description) -> Iterator[Route]:
    yield from method_routes(served.methods)
    yield document_route(served.methods)
    yield from models_routes(served.methods)
    yield metrics_route(served.metrics)
    yield from health_routes(served.health)
    texts = Texts(served.models, served.detector)
    faces = texts, served.documents, served.methods, served.keys, description.document
    yield from LibreTranslate(*faces).routes()
    yield from DeepL(texts).routes()
    yield from OpenAI(served.models).routes()
    yield Route("GET", "/", "http.Pages/Get", [], NATIVE, _file(PAGE / "index.html"), observed=False)


def _parts_of_pages(grpc_port: int) -> Iterator[Route]:
    """What nobody asks for but the pages themselves."""

    async def ports(asked: Asked) -> Response:
        return json_response({"grpc": grpc_port})

    parts = {file.relative_to(PAGE).as_posix(): _file(file) for file in PAGE.rglob("*.*") if file.suffix != ".html"}
    for path, answer in ({"playground/ports.json": ports} | parts).items():
        yield Route("GET", f"/{path}", "http.Pages/Get", [], NATIVE, answer, observed=False)


def _file(file: Path) -> Callable[[Asked], Awaitable[Response]]:
    content, media_type = file.read_bytes(), MEDIA_TYPES[file.suffix]

    async def page(asked: Asked) -> Response:
        return Response(content, media_type=media_type)

    return page


class Paths:
    """What answers at each path: those that name places, such as `/file/{name}`, are Starlette's to find."""

    def __init__(self, endpoints: Mapping[str, ASGIApp], nothing: ASGIApp) -> None:
        named = [Path_(path, endpoint) for path, endpoint in endpoints.items() if "{" in path]
        self._exact = {path: endpoint for path, endpoint in endpoints.items() if "{" not in path}
        self._others = Router(named, redirect_slashes=False, default=nothing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._exact.get(scope["path"], self._others)(scope, receive, send)


class Nothing:
    """What is at every other path."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Asked(Request(scope, receive), self._traffic)
        await reply(NATIVE.refusal(asked, PathNotFound(scope["path"])), asked, scope, receive, send)
