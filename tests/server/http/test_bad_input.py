"""Whatever comes to the HTTP port: it is refused with the right status, costs little, and calls beside it go on."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.http.transport.connection import MOST_HEAD_BYTES, MOST_HEADERS
from tests.fakes import WAIT_S
from tests.server.http.asking import JSON, STREAM, TRANSLATE, asking, head, reason, sent, status_of, translate_json
from tests.serving import Serving, eventually, serving

ROUTES = [TRANSLATE, STREAM, "/translate", "/detect", "/v2/translate", "/v1/embeddings"]
CHUNKED = {"transfer-encoding": "chunked", "content-type": JSON}


async def still_well(server: Serving) -> None:
    """A call beside it is answered, and none is left behind."""
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        assert (await client.post(TRANSLATE, json=translate_json("A cat."))).status_code == 200
    await eventually(lambda: server.calls.running == 0)


@pytest.fixture
def lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is refused may send all of it, however long that takes: where a connection is cut off, the answer is lost."""
    monkeypatch.setattr("server.http.asked.LINGER_S", WAIT_S)


@pytest.mark.usefixtures("lingering")
@pytest.mark.parametrize("path", ROUTES)
async def test_a_body_of_100_megabytes_is_refused_before_it_is_there(path: str) -> None:
    async with asking() as (server, client):
        size = 100 * 1024 * 1024
        response = await client.post(path, content=bytes(size), headers={"content-type": JSON})
        assert (response.status_code, response.headers["connection"]) == (413, "close")
        assert str(size) in response.text
        await still_well(server)


@pytest.mark.usefixtures("lingering")
async def test_a_body_whose_length_nobody_knows_is_cut_off_where_it_is_too_long() -> None:
    async def endless() -> Any:
        for _ in range(200):
            yield b" " * 1024

    async with asking() as (server, client):
        response = await client.post(TRANSLATE, content=endless(), headers={"content-type": JSON})
        assert (response.status_code, reason(response)) == (413, "MESSAGE_TOO_LARGE")
        await still_well(server)


@pytest.mark.parametrize("path", ROUTES)
async def test_a_body_that_does_not_come_is_not_waited_for(path: str) -> None:
    async with asking(request_timeout_s=1.0) as (server, _):
        answer = await sent(server, head(path, {"content-length": "10", "content-type": JSON}) + b'{"q"')
        assert status_of(answer) == 408
        await still_well(server)


async def test_what_is_no_path_is_told_as_any_other() -> None:
    async with asking() as (server, _):
        answer = await sent(server, head("*", {"connection": "close"}, "OPTIONS"))
        assert status_of(answer) == 404 and b"PATH_NOT_FOUND" in answer


async def test_a_request_for_two_hosts_is_for_none() -> None:
    """Whoever stands between may have looked at the other one."""
    async with asking() as (server, _):
        answer = await sent(server, head("/health", {"host": "other.example", "connection": "close"}, "GET"))
        assert status_of(answer) == 421 and b"localhost, other.example" in answer


@pytest.mark.parametrize(
    "parts", [(b"",), (b"POST /translate HTTP/1.1\r\nho",), (b"\r\n", b"\r\n"), (b"GET / HTTP/1.1\r\n", b"a: b\r\n")]
)
async def test_a_head_that_does_not_come_is_not_waited_for(parts: tuple[bytes, ...]) -> None:
    async with asking(request_timeout_s=1.0) as (server, _):
        answer = await sent(server, *parts, pause_s=0.01)
        assert answer == b"" or status_of(answer) == 408
        await still_well(server)


@pytest.mark.parametrize(
    "data",
    [
        head("/" + "a" * 2 * MOST_HEAD_BYTES, {}),
        head("/translate", {f"x-{index}": "a" * 1000 for index in range(100)}),
        head("/translate", {f"x{index}": "" for index in range(MOST_HEADERS + 1)}),
        b"GET / HTTP/1.1\r\nx: " + b"a" * 10 * MOST_HEAD_BYTES,
        head(TRANSLATE, CHUNKED) + b"0\r\n" + b"x: y\r\n" * 20_000,
        head(TRANSLATE, CHUNKED) + b"1;" + b"x" * 2 * MOST_HEAD_BYTES,
    ],
)
async def test_heads_and_trailers_have_an_end(data: bytes) -> None:
    async with asking() as (server, _):
        try:
            answer = await sent(server, data)
        except ConnectionError:  # closed with what it had not read
            answer = b""
        assert answer == b"" or status_of(answer) in (400, 404, 431)
        await still_well(server)


@pytest.mark.parametrize(
    "headers",
    [
        {"content-length": "5", "transfer-encoding": "chunked"},
        {"content-length": "5, 6"},
        {"content-length": "-1"},
        {"content-length": "+5"},
        {"content-length": "0x5"},
        {"transfer-encoding": "chunked, identity"},
        {"transfer-encoding": "xchunked"},
        {"transfer-encoding ": "chunked"},
        {"x": "a\rcontent-length: 5"},
        {"content-length": "1", "Content-Length": "2"},
    ],
)
async def test_what_two_parsers_could_take_for_two_requests_is_taken_for_none(headers: dict[str, str]) -> None:
    """Shapes of request smuggling: they are refused, and the connection ends, whatever else it has."""
    async with asking() as (server, _):
        hidden = head("/languages", {}, "GET")
        answer = await sent(server, head("/translate", headers) + b"0\r\n\r\n" + hidden)
        assert status_of(answer) == 400
        assert b"Portuguese" not in answer
        await still_well(server)


@pytest.mark.usefixtures("lingering")
async def test_a_second_request_behind_one_that_is_not_read_is_not_answered() -> None:
    async with asking() as (server, _):
        size = 10 * 1024 * 1024
        answer = await sent(server, head(TRANSLATE, {"content-length": str(size)}), bytes(size), head("/health", {}))
        assert status_of(answer) == 413
        assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1", "a b"]
)
async def test_a_name_that_was_bound_to_our_address_is_not_ours(host: str) -> None:
    """DNS rebinding."""
    async with asking() as (server, _):
        for path in ("/translate", "/v1/models", "/docs"):
            answer = await sent(server, head(path, {"connection": "close"}, "GET", host))
            assert status_of(answer) in (400, 421)
        await still_well(server)


async def test_own_names_are_ours_and_those_that_are_set() -> None:
    async with asking(http_hosts=("translate.example",)) as (server, _):
        for host in ("localhost", "LOCALHOST:8580", "127.0.0.1:1", "[::1]:8580", "translate.example"):
            assert status_of(await sent(server, head("/health", {"connection": "close"}, "GET", host))) == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "file://"])
async def test_a_page_of_another_origin_may_not_ask(origin: str) -> None:
    async with asking() as (server, client):
        for path in ROUTES:
            response = await client.post(path, data={"q": "A cat."}, headers={"origin": origin})
            assert (response.status_code, reason(response)) == (403, "ORIGIN_NOT_ALLOWED")
            assert "access-control-allow-origin" not in response.headers
        preflight = {"origin": origin, "access-control-request-method": "POST"}
        response = await client.options(TRANSLATE, headers=preflight)
        assert response.status_code == 405 and "access-control-allow-origin" not in response.headers
        own = await client.post(TRANSLATE, json=translate_json("A cat."), headers={"origin": server.url})
        assert own.status_code == 200


async def test_a_page_that_may_ask_is_told_so() -> None:
    async with asking(http_cors=("https://good.example",)) as (_, client):
        asked = {"origin": "https://good.example"}
        response = await client.post(TRANSLATE, json=translate_json("A cat."), headers=asked)
        assert response.headers["access-control-allow-origin"] == "https://good.example"
        preflight = await client.options(TRANSLATE, headers=asked | {"access-control-request-method": "POST"})
        assert preflight.status_code == 200
        response = await client.post(TRANSLATE, json={}, headers={"origin": "https://evil.example"})
        assert response.status_code == 403


async def test_every_answer_forbids_what_no_page_of_ours_needs() -> None:
    async with asking() as (_, client):
        for path in ("/docs", "/health", "/nope", "/languages"):
            headers = (await client.get(path)).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


async def test_more_connections_than_there_may_be_are_closed() -> None:
    async with serving(http=True, max_connections=2) as server:
        first = [await asyncio.open_connection("127.0.0.1", server.http_port) for _ in range(2)]
        await eventually(lambda: server.http is not None and len(server.http.server_state.connections) == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        async with asyncio.timeout(WAIT_S):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        for _, open_writer in [*first, (reader, writer)]:
            open_writer.close()
        await eventually(lambda: server.http is not None and not server.http.server_state.connections)
        await still_well(server)


async def test_a_stream_that_nobody_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.http.face.STATUS_TIMEOUT_S", 0.01)
    async with asking(stream_stall_timeout_s=0.1, max_message_bytes=1024 * 1024) as (server, _):
        monkeypatch.setattr("server.http.events.Event.encoded", lambda self: b"x" * 4 * 1024 * 1024)
        body = json.dumps({"content": "A cat and a dog and a cow.", "targetLanguageCode": "pt"}).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", server.http_port, limit=1)
        writer.write(head(STREAM, {"content-type": JSON, "content-length": str(len(body))}) + body)
        labels = {"method": "http.TranslationService/StreamTranslate", "code": "ABORTED"}
        await eventually(lambda: server.metric("dragoman_rpc_requests_total", **labels) == 1)
        await eventually(lambda: server.http is not None and not server.http.server_state.connections)
        writer.close()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = ["q", "source", "target", "format", "alternatives", "text", "target_lang", "source_lang", "input", "model"]
MORE_NAMES = ["encoding_format", "dimensions", "contents", "content", "targetLanguageCode", "decoding", "api_key"]
WORDS = ["en", "pt", "auto", "A cat.", "html", "text", "", "base64", "\ud800", ">>fra<<"]
bodies = st.dictionaries(st.sampled_from(NAMES + MORE_NAMES), values | st.sampled_from(WORDS), max_size=6)


def test_no_body_is_a_defect() -> None:
    """Of 300 of every kind, none is answered with 500."""

    async def run() -> None:
        async with asking() as (server, client):
            loop = asyncio.get_running_loop()

            @settings(max_examples=300, suppress_health_check=list(HealthCheck), database=None)
            @given(st.sampled_from(ROUTES), bodies, st.sampled_from([JSON, "application/x-www-form-urlencoded", "x/y"]))
            def post(path: str, body: Any, kind: str) -> None:
                content = json.dumps(body).encode()
                asked = client.post(path, content=content, headers={"content-type": kind})
                response = asyncio.run_coroutine_threadsafe(asked, loop).result(WAIT_S)
                assert response.status_code < 500, ascii((path, body, response.text))

            await asyncio.to_thread(post)
            await still_well(server)

    asyncio.run(run())


@pytest.mark.parametrize(
    "body",
    [
        b"--x\r\ncontent-disposition: form-data; name=q\r\n\r\na\r\n",
        b"--x\r\ncontent-disposition: form-data; name=q; filename=f\r\n\r\na\r\n--x--\r\n",
        b"--y--",
        b"--x\r\n" * 5000,
        b"".join(b"--x\r\ncontent-disposition: form-data; name=a%d\r\n\r\n\r\n" % index for index in range(1100)),
    ],
)
async def test_forms_that_are_none_are_told_so(body: bytes) -> None:
    async with asking() as (server, client):
        kind = {"content-type": "multipart/form-data; boundary=x"}
        assert (await client.post("/translate", content=body, headers=kind)).status_code == 400
        assert (
            await client.post("/translate", content=body, headers={"content-type": "multipart/form-data"})
        ).status_code == 400
        many = "&".join(f"a{index}=" for index in range(1100)).encode()
        form = {"content-type": "application/x-www-form-urlencoded"}
        assert (await client.post("/translate", content=many, headers=form)).status_code == 400
        await still_well(server)
