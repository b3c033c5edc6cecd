"""server.http.transport.places: no address keeps all connections, and who is being answered keeps its own."""

import asyncio
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from server.http.transport.places import Places
from tests.fakes import WAIT_S
from tests.server.http.asking import TRANSLATE, translate_json
from tests.server.http.test_port import trusting
from tests.server.identity.test_tls import Files
from tests.serving import Serving, eventually, held, serving

CROWD, OTHER = "127.0.0.1", "127.0.0.2"


@dataclass(eq=False)
class Connection:
    host: str
    busy: bool = False
    aborted: bool = field(default=False, init=False)

    def abort(self) -> None:
        self.aborted = True


def entered(places: Places, *connections: Connection) -> list[bool]:
    return [places.take(one, one.host) for one in connections]


def test_shares_become_equal_and_no_more_than_that() -> None:
    places = Places(4)
    crowd, others = [Connection("a") for _ in range(4)], [Connection("b") for _ in range(4)]
    assert entered(places, *crowd) == [True] * 4
    assert entered(places, *others) == [True, True, False, False]
    assert [one.aborted for one in crowd] == [True, True, False, False], "the oldest first"
    assert not any(one.aborted for one in others)
    assert entered(places, Connection("a"), Connection("c")) == [False, True]
    assert places.taken == 4


def test_who_is_answered_keeps_its_place() -> None:
    places = Places(3)
    crowd = [Connection("a", busy) for busy in (True, False, True)]
    entered(places, *crowd)
    assert places.free("b") and entered(places, Connection("b")) == [True]
    assert [one.aborted for one in crowd] == [False, True, False]
    assert not places.free("c") and entered(places, Connection("c")) == [False]


def test_a_place_is_given_back_once() -> None:
    places, one = Places(1), Connection("a")
    entered(places, one)
    for _ in range(2):
        places.leave(one, "a")
    assert places.taken == 0
    assert entered(places, Connection("a"), Connection("b")) == [True, False]


def client(server: Serving, host: str, trusted: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    """One that calls from an address of this machine. trusted: by TLS."""
    transport = httpx.AsyncHTTPTransport(local_address=host, verify=trusted or False)
    url = server.url if trusted is None else f"https://127.0.0.1:{server.http_port}"
    return httpx.AsyncClient(base_url=url, transport=transport, timeout=WAIT_S, trust_env=False)


async def idle(server: Serving, count: int) -> list[asyncio.StreamWriter]:
    """Connections that say nothing."""
    opened = [await asyncio.open_connection(CROWD, server.http_port) for _ in range(count)]
    return [writer for _, writer in opened]


async def test_an_address_that_holds_every_connection_keeps_nobody_out() -> None:
    most = 4
    async with serving(http=True, max_connections=most) as server, client(server, CROWD) as busy:
        server.decoder.gate.close()
        answered = asyncio.create_task(busy.post(TRANSLATE, json=translate_json("A cat.")))
        await held(server)
        writers = await idle(server, most - 1)
        await eventually(lambda: server.http is not None and len(server.http.server_state.connections) == most)
        async with client(server, OTHER) as other:
            assert (await other.get("/health")).status_code == 200
        async with client(server, CROWD) as another:
            server.decoder.gate.open()
            assert (await answered).status_code == 200, "who is answered is not cut off"
            writers += await idle(server, most)
            with pytest.raises(httpx.HTTPError):
                await another.get("/health")
        for writer in writers:
            writer.close()


async def test_by_tls_no_address_keeps_all_either(tmp_path: Path) -> None:
    files, most = Files(tmp_path), 3
    async with serving(http=True, tls=files.tls(mutual=False), max_connections=most) as server:
        trusted = trusting(files.authority)
        clients = [client(server, CROWD, trusted) for _ in range(most)]
        for one in clients:
            assert (await one.get("/health")).status_code == 200
        async with client(server, OTHER, trusted) as other:
            assert (await other.get("/health")).status_code == 200
        for one in clients:
            await one.aclose()
