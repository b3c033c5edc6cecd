"""What every request passes, and every answer carries: other sites may not use a browser to ask, or our pages."""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import ServerError
from server.http.asked import Asked
from server.http.errors import HostNotServed, OriginNotAllowed, error_headers
from server.http.face import reply
from server.http.native import NATIVE
from server.traffic.traffic import Traffic

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
EVERYWHERE = "*"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing and cost little."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
"""Of every answer."""


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, traffic: Traffic, hosts: Collection[str], origins: Collection[str]) -> None:
        """hosts: names that are answered for; empty: any. origins: whose pages may ask, beside our own."""
        self._app, self._traffic = app, traffic
        self._hosts, self._origins = frozenset(hosts), frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        error = self._host_error(", ".join(headers.getlist("host"))) or self._origin_error(scope["method"], headers)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    if name not in more and not (self._origins and name == "cross-origin-resource-policy"):
                        more[name] = value
            await send(message)

        if error is None:
            await self._app(scope, receive, send_guarded)
            return
        asked = Asked(Request(scope, receive), self._traffic)
        response = NATIVE.refusal(asked, error)
        response.headers.update(error_headers(error))
        await reply(response, asked, scope, receive, send_guarded)

    def _host_error(self, host: str) -> ServerError | None:
        """A page whose name was bound to our address asks under that name (DNS rebinding)."""
        served = not self._hosts or _name(host) in self._hosts
        return None if served else HostNotServed(host, self._hosts)

    def _origin_error(self, method: str, headers: Headers) -> ServerError | None:
        """A browser lets any page post forms, and names the origin."""
        origin = headers.get("origin")
        if method in SAFE or origin is None or {origin, EVERYWHERE} & self._origins:
            return None
        own = urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
        return None if own else OriginNotAllowed(origin)


def _name(host: str) -> str:
    """Without the port."""
    name, _, port = host.lower().rpartition(":")
    return name if name and port.isdecimal() else host.lower()
