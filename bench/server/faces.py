"""`python -m bench.server.faces`: what LibreTranslate's face costs over gRPC's, of one server. See docs/benchmarks.md.

Both faces take turns in one run, with the same sentences, each taken apart as the face of LibreTranslate always does;
callers keep their connection, and no answer is kept.
"""

import argparse
import http
import json
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from httptools import HttpResponseParser

from bench.flags.values import package_at, whole
from bench.measure import alternate, percentile, seconds
from bench.process import Server, free_port, serving
from bench.sentences import english
from dragoman import Client
from dragoman.quickstart import HOST

ZOO = Path(__file__).parents[2] / "models" / "zoo"
GRPC, LIBRETRANSLATE = "Translate by gRPC", "/translate by HTTP"
TIMEOUT_S = 60

Translate = Callable[[str], object]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.faces", description=__doc__)
    parser.add_argument("--package", type=package_at, default=ZOO / "en-pt", help="what is served")
    parser.add_argument("--callers", type=whole, default=32, help="at once, where calls for each second are counted")
    parser.add_argument("--sentences", type=whole, default=256, help="of each reading")
    parser.add_argument("--repeats", type=whole, default=5, help="readings of each side")
    arguments = parser.parse_args()
    texts, http_port = english(arguments.sentences), free_port()
    options = ["--package", str(arguments.package), "--http-port", str(http_port), "--cache-mb", "0"]
    with serving("server", options) as server, ExitStack() as open_faces:
        faces = {GRPC: _grpc(server, open_faces), LIBRETRANSLATE: translate_by_libretranslate(http_port)}
        one = alternate({name: partial(_p50, face, texts) for name, face in faces.items()}, arguments.repeats)
        many = alternate(
            {name: partial(_rate, face, texts, arguments.callers) for name, face in faces.items()},
            arguments.repeats,
        )
    latency = one[LIBRETRANSLATE].median / one[GRPC].median
    rate = many[LIBRETRANSLATE].median / many[GRPC].median
    for name in faces:
        told = f"p50 {one[name].median * 1000:.1f} ms with 1 caller"
        print(f"{name}: {told}; {many[name].median:.1f} calls/s with {arguments.callers}")
    print(f"{LIBRETRANSLATE} over {GRPC}: p50 {latency:.3f} x, calls/s {rate:.3f} x")


def _grpc(server: Server, open_faces: ExitStack) -> Translate:
    client = open_faces.enter_context(Client(server.target))
    return lambda text: client.translate(text, segmentation="sentences", timeout_s=TIMEOUT_S)


class Connection:
    """To an HTTP server on this machine. It does little: what callers cost is taken from the servers' cores."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = f"{HOST}:{port}"

    def post(self, path: str, content: object) -> Any:
        """The JSON that answers this one. Raises RuntimeError for another status than 200."""
        body = json.dumps(content).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        self._socket.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = _Answer()
        parser = HttpResponseParser(answer)
        while not answer.whole:
            if not (data := self._socket.recv(65536)):
                raise RuntimeError(f"{self._host} ended the connection")
            parser.feed_data(data)
        if (status := parser.get_status_code()) != http.HTTPStatus.OK:
            raise RuntimeError(f"{path} answered {status}: {bytes(answer.body)[:300]!r}")
        return json.loads(answer.body)


class _Answer:
    """What the parser is told of."""

    def __init__(self) -> None:
        self.body, self.whole = bytearray(), False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole = True


def translate_by_libretranslate(port: int, alternatives: int = 0) -> Callable[[str], str]:
    """Asks whoever speaks LibreTranslate's API there. Each thread has a connection of its own, as each caller would."""
    own = threading.local()

    def translate(text: str) -> str:
        if not hasattr(own, "connection"):
            own.connection = Connection(port)
        asked = {"q": text, "source": "en", "target": "pt", "alternatives": alternatives}
        translated: str = own.connection.post("/translate", asked)["translatedText"]
        return translated

    return translate


def _p50(translate: Translate, texts: Iterable[str]) -> float:
    """Seconds of a call."""
    return percentile([seconds(partial(translate, text)) for text in islice(texts, 64)], 50)


def _rate(translate: Translate, texts: list[str], callers: int) -> float:
    """Calls for each second."""
    with ThreadPoolExecutor(callers) as pool:
        return len(texts) / seconds(lambda: list(pool.map(translate, texts)))


if __name__ == "__main__":
    main()
