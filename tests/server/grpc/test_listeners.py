"""server.grpc.listeners and server.traffic.ports: ports, and the metrics endpoint."""

import asyncio
import logging
import resource
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1.health import aio as health_aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub, add_HealthServicer_to_server
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.registry import Collector

from server.config import ConfigError, Settings
from server.grpc import listeners
from server.grpc.listeners import open_server
from server.telemetry.exposition.endpoint import metrics_endpoint
from server.traffic.bounds import Bounds
from server.traffic.ports import address
from tests.fakes import WAIT_S


def settings(**values: object) -> Settings:
    return Settings(workers=1, **{"port": 0, "metrics_port": 0, **values})  # type: ignore[arg-type]


def opened(**values: object) -> tuple[grpc.aio.Server, int]:
    given = settings(**values)
    return open_server(given, Bounds.within(given, None), [])


@contextmanager
def taken() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("host", "written"), [("127.0.0.1", "127.0.0.1:80"), ("localhost", "localhost:80"), ("::1", "[::1]:80")]
)
def test_addresses(host: str, written: str) -> None:
    assert address(host, 80) == written


async def test_a_grpc_port_in_use_is_named_with_the_way_out() -> None:
    with taken() as port, pytest.raises(ConfigError) as caught:
        opened(port=port)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in str(caught.value)
    assert "--port" in str(caught.value)


async def test_a_grpc_port_of_a_server_of_ours_is_in_use_too() -> None:
    first, port = opened()
    await first.start()
    with pytest.raises(ConfigError, match="already in use"):
        opened(port=port)
    await first.stop(None)


async def test_a_name_with_a_port_in_use_on_one_of_its_addresses_is_refused() -> None:
    with taken() as port, pytest.raises(ConfigError, match="already in use"):
        opened(host="localhost", port=port)


def test_a_metrics_port_in_use_is_named_with_the_way_out() -> None:
    with taken() as port, pytest.raises(ConfigError) as caught, metrics_endpoint(settings(metrics_port=port), REGISTRY):
        pass
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in str(caught.value)
    assert "--metrics-port" in str(caught.value)


async def test_a_host_that_is_not_ours_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0: .*--host"):
        opened(host="192.0.2.1")


async def test_an_address_that_grpc_does_not_know_is_told_with_the_way_out() -> None:
    """The system takes 0 for 0.0.0.0."""
    with pytest.raises(ConfigError, match=r"^gRPC cannot listen on 0:0: [^;]*; .*--host, in full, such as 0\.0\.0\.0$"):
        opened(host="0")


REGISTRY = CollectorRegistry()
Counter("apples", "Apples.", registry=REGISTRY).inc(3)


def test_metrics_are_served_while_the_context_lasts() -> None:
    with metrics_endpoint(settings(), REGISTRY) as metrics:
        page = urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics").read().decode()
        assert "apples_total 3.0" in page
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics")


def test_who_asks_for_openmetrics_gets_it() -> None:
    registry = CollectorRegistry()
    Counter("pears", "Pears.", registry=registry).inc(1, {"trace_id": "0af7651916cd43dd8448eb211c80319c"})
    with metrics_endpoint(settings(), registry) as metrics:
        wanted = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
        request = urllib.request.Request(f"http://127.0.0.1:{metrics.port}/metrics", headers=wanted)
        with urllib.request.urlopen(request) as page:
            assert page.headers["Content-Type"].startswith("application/openmetrics-text")
            [family] = parse_openmetrics(page.read().decode())
    assert family.samples[0].exemplar.labels == {"trace_id": "0af7651916cd43dd8448eb211c80319c"}


async def test_metrics_are_made_on_another_thread() -> None:
    """So that a page which takes long does not hold up calls."""
    makers = []

    class Slow(Collector):
        def collect(self) -> Iterator[Metric]:
            makers.append(threading.current_thread())
            yield GaugeMetricFamily("melons", "Melons.", 1)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Slow())
    makers.clear()
    with metrics_endpoint(settings(), registry) as metrics:
        await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{metrics.port}/metrics")
    assert [maker is threading.current_thread() for maker in makers] == [False]


async def test_servers_that_both_say_so_share_a_port() -> None:
    first, port = opened(reuse_port=True)
    second, same = opened(reuse_port=True, port=port)
    assert same == port
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        opened(port=port)
    for server in (first, second):
        await server.stop(None)


# Connections

SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client of HTTP/2 begins."""


@asynccontextmanager
async def started(**values: object) -> AsyncIterator[int]:
    """A server with health alone. Gives the port."""
    server, port = opened(**values)
    add_HealthServicer_to_server(health_aio.HealthServicer(), server)
    await server.start()
    yield port
    await server.stop(None)


async def closed(port: int, sent: bytes) -> bytes:
    """What a connection is told until the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(WAIT_S):
        told = await reader.read()
    writer.close()
    return told


async def is_serving(port: int) -> bool:
    """Whether a new client is answered, which connects again where its own handshake took too long."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("port", port)]) as channel:
        stub: Any = HealthStub(channel)
        answer = await stub.Check(HealthCheckRequest(), wait_for_ready=True)
        return bool(answer.status == HealthCheckResponse.SERVING)


@pytest.mark.parametrize("sent", [b"", SETTINGS[:20], b"GET / HTTP/1.1\r\n\r\n"])
async def test_who_does_not_speak_is_left(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = [(name, 300 if name == "grpc.server_handshake_timeout_ms" else value) for name, value in listeners.OPTIONS]
    monkeypatch.setattr(listeners, "OPTIONS", soon)
    async with started() as port:
        await closed(port, sent)
        assert await is_serving(port)


async def test_who_does_not_say_that_it_lives_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC has two clocks for that, the first of which it never starts."""
    clocks = ("keepalive_time_ms", "keepalive_timeout_ms", "ping_timeout_ms")
    soon = [(name, 100 if name.endswith(clocks) else value) for name, value in listeners.OPTIONS]
    monkeypatch.setattr(listeners, "OPTIONS", soon)
    async with started() as port:
        await closed(port, SETTINGS)


async def test_a_connection_without_a_call_is_closed() -> None:
    async with started(connection_idle_s=1) as port:
        assert b"idle" in await closed(port, SETTINGS)


async def test_a_connection_that_is_old_is_closed() -> None:
    async with started(connection_age_s=1, connection_age_grace_s=1) as port:
        assert b"max_age" in await closed(port, SETTINGS)


async def test_no_call_is_lost_with_a_connection_that_is_old() -> None:
    """However slow its client is: calls have the grace. By the second round the first one's connection is old, too."""
    async with (
        started(connection_age_s=1, connection_age_grace_s=WAIT_S) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub: Any = HealthStub(channel)
        for _ in range(2):
            old = asyncio.create_task(told_of_its_age(port))
            while not old.done():
                assert (await stub.Check(HealthCheckRequest())).status == HealthCheckResponse.SERVING
            await old


async def told_of_its_age(port: int) -> None:
    """A connection by which nothing is called."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(SETTINGS)
    async with asyncio.timeout(WAIT_S):
        await reader.readuntil(b"max_age")
    writer.close()


async def test_more_connections_than_there_may_be_are_closed_at_once() -> None:
    async with started(max_connections=2) as port:
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in kept:
            writer.write(SETTINGS)
            assert await reader.read(1)
        with suppress(ConnectionError):
            assert await closed(port, SETTINGS) == b""
        for _, writer in kept:
            writer.close()


async def test_who_leaves_while_they_are_answered_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    grpc_log = logging.getLogger("grpc._cython.cygrpc")
    async with started():
        for error in (grpc.aio.InternalError("gone"), ValueError("news")):
            grpc_log.error("failed", exc_info=error)
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["news"]


def test_open_files_are_asked_for_and_bound_the_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.__setitem__(slice(None), new))
    assert listeners._room_for(500) == 500
    assert limits == [1024, 4096]
    assert listeners._room_for(2000) == 2000
    assert limits == [2000 + listeners.OTHER_FILES, 4096]
    assert not caplog.records
    assert listeners._room_for(10_000) == 4096 - listeners.OTHER_FILES
    assert "4096 open files (ulimit -n) leave room for 3840 connections, not 10000" in caplog.text
    limits[:] = [resource.RLIM_INFINITY, resource.RLIM_INFINITY]
    assert listeners._room_for(10_000) == 10_000
