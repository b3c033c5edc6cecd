"""`python -m bench.server.faces`: what LibreTranslate's face costs over gRPC's, of one server. See docs/benchmarks.md.

Both faces take turns in one run, with the same sentences, each taken apart as the face of LibreTranslate always does;
callers keep their connection, and no answer is kept.
"""

import argparse
import http.client
import json
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

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
    parser.add_argument("--package", type=Path, default=ZOO / "en-pt", help="what is served")
    parser.add_argument("--callers", type=int, default=32, help="at once, where calls for each second are counted")
    parser.add_argument("--sentences", type=int, default=256, help="of each reading")
    parser.add_argument("--repeats", type=int, default=5, help="readings of each side")
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


def translate_by_libretranslate(port: int, alternatives: int = 0) -> Callable[[str], str]:
    """Asks whoever speaks LibreTranslate's API there. Each thread has a connection of its own, as each caller would."""
    own = threading.local()

    def translate(text: str) -> str:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_S)
        body = json.dumps({"q": text, "source": "en", "target": "pt", "alternatives": alternatives})
        own.connection.request("POST", "/translate", body, {"content-type": "application/json"})
        answer = own.connection.getresponse()
        found = json.loads(answer.read())
        if answer.status != http.client.OK:
            raise RuntimeError(f"/translate answered {answer.status}: {found}")
        translated: str = found["translatedText"]
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
