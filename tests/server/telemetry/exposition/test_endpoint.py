"""server.telemetry.exposition.endpoint: who asks gets the page of then, and nobody costs the others much."""

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from server.telemetry.exposition import endpoint
from server.telemetry.exposition.endpoint import MOST_ASKING, REQUEST_BYTES, serving
from tests.fakes import WAIT_S

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


class Pages(Collector):
    """Counts the pages, and fails if it is told to."""

    def __init__(self) -> None:
        self.made = 0
        self.error: Exception | None = None

    def collect(self) -> Iterator[Metric]:
        self.made += 1
        if self.error is not None:
            raise self.error
        yield CounterMetricFamily("pages", "Pages.", self.made)


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def port(pages: Pages) -> Iterator[int]:
    registry = CollectorRegistry(auto_describe=False)
    Gauge("apples", "Apples.", registry=registry).set(3)
    registry.register(pages)
    pages.made = 0  # a registry looks at what it is given
    listener = socket.create_server(("127.0.0.1", 0))
    with serving(listener, registry):
        yield listener.getsockname()[1]


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WAIT_S)


def answer(asking: socket.socket) -> bytes:
    """All that comes until the server closes."""
    with asking, asking.makefile("rb") as file:
        return file.read()


def ask(port: int, data: bytes) -> bytes:
    asking = connect(port)
    asking.sendall(data)
    return answer(asking)


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        (None, False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        # Prometheus 2.42's own
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
        ),
    ],
)
def test_the_format_is_the_one_that_is_asked_for(port: int, accept: str | None, openmetrics: bool) -> None:
    headers = {} if accept is None else {"Accept": accept}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics?x=1", headers=headers)
    with urllib.request.urlopen(request) as page:
        kind, body = page.headers["Content-Type"], page.read().decode()
    assert kind.startswith(
        "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain; version=0.0.4"
    )
    assert body.endswith("# EOF\n") == openmetrics
    assert "\napples 3.0\n" in body


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"x" * REQUEST_BYTES, 431),
    ],
)
def test_what_is_not_asked_for_right_is_told_so(port: int, request_: bytes, status: int) -> None:
    assert ask(port, request_).startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\napples 3.0\n" in ask(port, REQUEST)


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 431)])
def test_a_request_of_16_kib_is_the_largest(port: int, more: int, status: int) -> None:
    begun, ended = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ", b"\r\n\r\n"
    request = begun + b"x" * (REQUEST_BYTES + more - len(begun + ended)) + ended
    assert ask(port, request).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_whoever_asks_by_head_gets_the_headers(port: int, path: str, caplog: pytest.LogCaptureFixture) -> None:
    request = f" {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    headers, _, body = ask(port, b"HEAD" + request).partition(b"\r\n\r\n")
    assert headers == ask(port, b"GET" + request).partition(b"\r\n\r\n")[0] and body == b""
    assert not caplog.records


def test_pages_are_made_for_all_who_ask_meanwhile_and_are_never_old(
    port: int, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "PAGE_SHARE", 0.0001)  # some tenths of a second between two
    asked = 40
    with ThreadPoolExecutor(asked) as threads:
        told = list(threads.map(lambda _: ask(port, REQUEST), range(asked)))
    assert all(b"\napples 3.0\n" in page for page in told)
    assert pages.made < asked / 2
    made = pages.made
    assert f"\npages_total {made + 1}.0\n".encode() in ask(port, REQUEST)


def test_half_requests_keep_nobody_out(port: int) -> None:
    before = threading.active_count()
    with ExitStack() as opened:
        asking = []
        for _ in range(3 * MOST_ASKING):
            asking.append(opened.enter_context(connect(port)))
            asking[-1].sendall(REQUEST[:-2])  # at once: the first of them are told to go while others come
        assert b"\napples 3.0\n" in ask(port, REQUEST)
        assert answer(asking[0]).startswith(b"HTTP/1.1 408 ")
        assert threading.active_count() <= before
        asking[-1].sendall(REQUEST[-2:])  # one of the latest
        assert b"\napples 3.0\n" in answer(asking[-1])


@pytest.mark.parametrize("sent", [b"", REQUEST[:-2]])
def test_a_request_has_to_come_in_time(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "REQUEST_S", 0.05)
    listener = socket.create_server(("127.0.0.1", 0))
    with serving(listener, CollectorRegistry()):
        assert ask(listener.getsockname()[1], sent).startswith(b"HTTP/1.1 408 ")


def test_more_than_can_be_answered_are_told_to_come_later(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MOST_ANSWERED", 0)
    assert ask(port, REQUEST).startswith(b"HTTP/1.1 503 ")


def test_who_leaves_is_not_worth_a_word(port: int, caplog: pytest.LogCaptureFixture) -> None:
    for sent in (b"", REQUEST[:-2], REQUEST):
        with closing(connect(port)) as asking:
            asking.sendall(sent)
    assert b"\napples 3.0\n" in ask(port, REQUEST)
    assert not caplog.records


def test_a_page_that_cannot_be_made_is_a_word_in_the_log(
    port: int, pages: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    pages.error = ValueError("no apples")
    with pytest.raises(urllib.error.HTTPError, match="500") as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
    caught.value.close()
    assert "no apples" in caplog.text
    pages.error = None
    assert b"\napples 3.0\n" in ask(port, REQUEST)


async def test_the_port_is_closed_with_all_who_ask() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with serving(listener, CollectorRegistry()):
        asking = connect(listener.getsockname()[1])
        asking.sendall(REQUEST[:-2])
    assert await asyncio.to_thread(answer, asking) == b""
