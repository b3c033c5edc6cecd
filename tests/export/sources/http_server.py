"""A real HTTP server in the test process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Reply:
    """What a request is answered."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    send: int | None = None
    """Bytes of the body after which the connection breaks off."""


Answer = Callable[[str, dict[str, str]], Reply]
"""Of a path and the request's headers, in lower case."""


class Handler(BaseHTTPRequestHandler):
    """Asks a function what to answer."""

    protocol_version = "HTTP/1.1"
    answer: Answer

    def do_GET(self) -> None:
        reply = type(self).answer(self.path, {name.lower(): value for name, value in self.headers.items()})
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(reply.body[: reply.send])
            self.close_connection |= reply.send is not None

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """Yields the server's URL."""
    handler = type("Answering", (Handler,), {"answer": staticmethod(answer)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
