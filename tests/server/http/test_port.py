"""server.http.opening, listener and the end of a server: the port opens late, closes in time, and may have TLS."""

import asyncio
import logging
import os
import signal
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from bench.process import free_port
from server import app
from server.config import ConfigError, Settings
from server.http.opening import HttpPort, served_hosts
from server.identity.door import Door, OpenDoor
from server.lifecycle import drain
from tests.fakes import WAIT_S
from tests.server.http.asking import STREAM, TRANSLATE, asking, head, reason, sent, translate_json
from tests.server.identity.test_tls import Files, listed
from tests.server_process import server_process
from tests.serving import ZOO, Serving, eventually, held, serving


async def drained(server: Serving, grace_period_s: float = 60.0) -> None:
    parts = server.server, server.health, [server.admission], server.calls
    await drain(*parts, grace_period_s, asyncio.Event(), server.http)


@pytest.mark.usefixtures("answers_get_out")
async def test_what_runs_is_answered_and_others_are_told_to_go_until_the_port_closes() -> None:
    async with asking() as (server, client), httpx.AsyncClient(base_url=server.url, trust_env=False) as other:
        server.decoder.gate.close()
        running = asyncio.create_task(client.post(TRANSLATE, json=translate_json("Two dogs bark.")))
        await held(server)
        draining = asyncio.create_task(drained(server))
        await eventually(lambda: server.health.state == "draining")
        assert (await other.get("/health")).json() == {"status": "draining"}
        assert reason(await other.post(TRANSLATE, json=translate_json("A cat."))) == "DRAINING"
        assert not draining.done()
        server.decoder.gate.open()
        assert (await running).json()["translations"][0]["hypotheses"][0]["text"] == "Two dogs bark."
        await draining
        with pytest.raises(httpx.ConnectError):
            await other.get("/health")


@pytest.mark.usefixtures("answers_get_out")
@pytest.mark.parametrize("path", [TRANSLATE, STREAM])
async def test_what_does_not_finish_is_told_so(path: str) -> None:
    async with asking() as (server, client):
        server.decoder.gate.close()
        body = translate_json("A cat.") if path == TRANSLATE else {"content": "A cat.", "targetLanguageCode": "pt"}
        running = asyncio.create_task(client.post(path, json=body))
        await held(server)
        await drained(server, 0.01)
        response = await running
        assert (response.status_code, reason(response)) == (503, "DRAINING")


async def test_who_does_not_read_holds_up_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.http.events.Event.encoded", lambda self: b"x" * 4 * 1024 * 1024)
    async with serving(http=True) as server:
        body = b'{"content": "A cat.", "targetLanguageCode": "pt"}'
        _, writer = await asyncio.open_connection("127.0.0.1", server.http_port, limit=1)
        writer.write(head(STREAM, {"content-type": "application/json", "content-length": str(len(body))}) + body)
        await eventually(lambda: server.calls.running == 1)
        await eventually(lambda: server.model_metric("dragoman_finished_total", reason="end_token") == 1)
        async with asyncio.timeout(WAIT_S):
            await drained(server, 0.01)
        assert "cut off" in caplog.text and server.calls.running == 0
        writer.close()


@pytest.mark.parametrize("chunked", [False, True])
async def test_who_asks_for_another_protocol_is_answered_by_this_one(
    chunked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As Java's own client does in whatever it sends: what it has to say comes with it, and others come after."""
    asks = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAEAAEAAAAIAAAAB"}
    body = b'{"contents": ["A cat."], "targetLanguageCode": "pt"}'
    length = {"transfer-encoding": "chunked"} if chunked else {"content-length": str(len(body))}
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    whole = head(TRANSLATE, {"content-type": "application/json", **length, **asks}) + framed
    page = head("/health", asks, "GET")
    last = head("/health", {"connection": "close"}, "GET")
    async with serving(http=True) as server:
        together = await sent(server, whole + whole + page + last)
        apart = await sent(server, whole[:40], whole[40:-20], whole[-20:] + page[:30], page[30:], last, pause_s=0.02)
        tunnel = await sent(server, b"CONNECT localhost:443 HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (together.count(b"HTTP/1.1 200 OK"), together.count(b'"text":"A cat."')) == (4, 2)
    assert (apart.count(b"HTTP/1.1 200 OK"), apart.count(b'"text":"A cat."')) == (3, 1)
    assert tunnel.startswith(b"HTTP/1.1 400 ")
    assert "pgrade" not in caplog.text


async def test_who_knows_no_chunks_gets_none() -> None:
    """HTTP/1.0, which nginx speaks unless it is told otherwise: what has no length ends with the connection."""
    asked = b'{"content": "A cat.", "targetLanguageCode": "pt"}'
    headers = {"content-type": "application/json", "content-length": str(len(asked)), "connection": "keep-alive"}
    async with serving(http=True) as server:
        stream = await sent(server, head(STREAM, headers).replace(b"HTTP/1.1", b"HTTP/1.0") + asked)
        page = await sent(server, head("/health", {}, "GET").replace(b"HTTP/1.1", b"HTTP/1.0"))
    first, _, events = stream.partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200 OK") and b"transfer-encoding" not in first and b"connection: close" in first
    told = [line for line in events.split(b"\n") if line]
    assert told and all(line.startswith((b"data: ", b"event: ", b": ")) for line in told), told
    assert b"content-length: " in page and page.endswith(b'{"status":"ok"}')


async def test_a_port_in_use_is_named_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="--http-port"):
        HttpPort(Settings(workers=1, http_port=taken.getsockname()[1]))


async def test_a_port_refuses_until_it_answers() -> None:
    port = HttpPort(Settings(workers=1, http_port=0))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port.address.rpartition(":")[2])))
    port.close()


async def test_without_what_it_takes_there_is_none_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(app, "missing_modules", lambda: ["starlette"])
    assert app.own_http_port(Settings(workers=1)) is None
    assert "there is no HTTP port: not installed is starlette; pip install '.[http]'" in caplog.text
    assert app.own_http_port(Settings(workers=1, http=False)) is None


def test_hosts_are_checked_on_loopback_and_where_they_are_named() -> None:
    loopback = {"localhost", "127.0.0.1", "[::1]"}
    assert served_hosts(Settings(workers=1)) == loopback
    assert served_hosts(Settings(workers=1, host="127.0.0.2")) == loopback | {"127.0.0.2"}
    assert served_hosts(Settings(workers=1, host="0.0.0.0")) == set()
    assert served_hosts(Settings(workers=1, host="0.0.0.0", http_hosts=("A.example",))) > {"a.example", "localhost"}


def trusting(authority: trustme.CA, issued: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """Of a client."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if issued is not None:
        issued.configure_cert(context)
    return context


async def called(server: Serving, tls: ssl.SSLContext) -> str:
    """The reason of a refusal, or the answer; "no TLS" where there is no connection."""
    url = f"https://127.0.0.1:{server.http_port}"
    async with httpx.AsyncClient(base_url=url, verify=tls, trust_env=False) as client:
        try:
            response = await client.post(TRANSLATE, json=translate_json("A cat."))
        except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
            return "no TLS"
    if response.status_code != 200:
        return reason(response)
    text: str = response.json()["translations"][0]["hypotheses"][0]["text"]
    return text


@pytest.mark.parametrize("door", [listed("a.example"), OpenDoor()])
async def test_certificates_say_who_calls_and_are_renewed_as_those_of_grpc(tmp_path: Path, door: Door) -> None:
    files = Files(tmp_path)
    tls, old, new = files.tls(), files.authority, trustme.CA()
    async with serving(http=True, door=door, tls=tls) as server:
        before, after = (trusting(one, one.issue_cert("a.example")) for one in (old, new))
        other = trusting(old, old.issue_cert("b.example"))
        assert [await called(server, one) for one in (before, after)] == ["A cat.", "no TLS"]
        assert await called(server, trusting(old)) == "no TLS"
        assert await called(server, other) == ("A cat." if isinstance(door, OpenDoor) else "CALLER_NOT_LISTED")
        files.renew(new)
        tls.load()
        assert [await called(server, one) for one in (before, after)] == ["no TLS", "A cat."]


def shaken(port: int, tls: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLSession | None:
    """The session of a connection that was answered. Raises OSError where there is none."""
    with (
        socket.create_connection(("127.0.0.1", port), WAIT_S) as plain,
        tls.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as secured,
    ):
        secured.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        if not secured.recv(1):
            raise ConnectionError("closed without an answer")
        assert secured.session_reused == (session is not None)
        return secured.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_does_not_outlive_the_authority_of_its_certificate(
    version: ssl.TLSVersion, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    tls, old, new = files.tls(), files.authority, trustme.CA()
    client = trusting(old, old.issue_cert("a.example"))
    client.maximum_version = version
    new.configure_trust(client)
    async with serving(http=True, tls=tls) as server:
        session = await asyncio.to_thread(shaken, server.http_port, client)
        session = await asyncio.to_thread(shaken, server.http_port, client, session)
        files.renew(new)
        tls.load()
        with pytest.raises(OSError, match=r"EOF|closed|reset|unknown ca"):
            await asyncio.to_thread(shaken, server.http_port, client, session)


async def half_a_handshake(port: int) -> "asyncio.Task[bytes]":
    """Done when the server has closed its connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x16\x03\x01")

    async def closed() -> bytes:
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    return asyncio.create_task(closed())


async def test_handshakes_take_places_and_the_oldest_of_too_many_is_given_up(tmp_path: Path) -> None:
    files, most = Files(tmp_path), 4
    async with serving(http=True, tls=files.tls(mutual=False), max_connections=most) as server:
        half = [await half_a_handshake(server.http_port) for _ in range(3 * most)]
        await eventually(lambda: sum(one.done() for one in half) == 2 * most)
        assert all(one.done() for one in half[: 2 * most])
        assert await called(server, trusting(files.authority)) == "A cat."
    await asyncio.gather(*half)


async def test_a_handshake_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.http.transport.handshakes.HANDSHAKE_S", 0.05)
    async with serving(http=True, tls=Files(tmp_path).tls(mutual=False)) as server:
        half = await half_a_handshake(server.http_port)
        async with asyncio.timeout(WAIT_S):
            assert await half == b""


async def test_the_last_answer_of_an_old_connection_says_so() -> None:
    """Clients come to know new servers. One that asks for nothing more is cut off later."""
    async with asking(connection_age_s=2) as (server, client):
        first = await client.get("/health")
        assert "connection" not in first.headers
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        writer.write(head("/health", {}, "GET"))
        async with asyncio.timeout(WAIT_S):
            while (await client.get("/health")).headers.get("connection") != "close":
                await asyncio.sleep(0.05)
            assert "connection" not in (await client.get("/health")).headers
            assert b"connection: close" not in await reader.read()
        writer.close()


def test_a_process_answers_on_both_ports_shows_its_page_and_ends(tmp_path: Path) -> None:
    port = free_port()
    browser, shown = tmp_path / "browser", tmp_path / "shown"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {shown}.part && mv {shown}.part {shown}\n')
    browser.chmod(0o755)
    environment = {**os.environ, "BROWSER": f"{browser} %s"}
    with server_process(ZOO, "--http-port", port, "--open", environment=environment) as server:
        url = f"http://127.0.0.1:{port}"

        def answer(path: str, data: bytes | None = None) -> Any:
            try:
                return urllib.request.urlopen(f"{url}{path}", data).read()
            except urllib.error.URLError as error:  # it opens after the other one
                return error

        while isinstance(answer("/health"), urllib.error.URLError):
            assert server.process.poll() is None
        asked = b"q=Where+is+the+station%3F&source=en&target=pt"
        assert answer("/translate", asked) == '{"translatedText":"Onde está a estação?"}'.encode()
        called = {"method": "libretranslate.TranslationService/Translate"}
        while not server.metrics()("dragoman_rpc_requests_total", **called):
            assert server.process.poll() is None
        assert server.metrics()("dragoman_rpc_requests_total", **called) == 1
        while not shown.exists():
            assert server.process.poll() is None
        assert shown.read_text() == f"{url}/"
        assert server.end(signal.SIGTERM) == 0
