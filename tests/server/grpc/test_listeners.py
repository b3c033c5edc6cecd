"""server.grpc.listeners: ports, and the metrics endpoint."""

import asyncio
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.registry import Collector

from server.config import ConfigError, Settings
from server.grpc.listeners import address, metrics_endpoint, open_server


def settings(**values: object) -> Settings:
    return Settings(workers=1, **{"port": 0, "metrics_port": 0, **values})  # type: ignore[arg-type]


@contextmanager
def taken(host: str = "127.0.0.1") -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.create_server((host, 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("host", "written"), [("127.0.0.1", "127.0.0.1:80"), ("localhost", "localhost:80"), ("::1", "[::1]:80")]
)
def test_addresses(host: str, written: str) -> None:
    assert address(host, 80) == written


async def test_a_grpc_port_in_use_is_named_with_the_way_out() -> None:
    with taken() as port, pytest.raises(ConfigError) as caught:
        open_server(settings(port=port), [])
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in str(caught.value)
    assert "--port" in str(caught.value)


async def test_a_grpc_port_of_a_server_of_ours_is_in_use_too() -> None:
    first, port = open_server(settings(), [])
    await first.start()
    with pytest.raises(ConfigError, match="already in use"):
        open_server(settings(port=port), [])
    await first.stop(None)


async def test_a_name_with_a_port_in_use_on_one_of_its_addresses_is_refused() -> None:
    with taken() as port, pytest.raises(ConfigError, match="already in use"):
        open_server(settings(host="localhost", port=port), [])


def test_a_metrics_port_in_use_is_named_with_the_way_out() -> None:
    with taken() as port, pytest.raises(ConfigError) as caught, metrics_endpoint(settings(metrics_port=port), REGISTRY):
        pass
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in str(caught.value)
    assert "--metrics-port" in str(caught.value)


async def test_a_host_that_is_not_ours_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0: .*--host"):
        open_server(settings(host="192.0.2.1"), [])


REGISTRY = CollectorRegistry()
Counter("apples", "Apples.", registry=REGISTRY).inc(3)


def test_metrics_are_served_while_the_context_lasts() -> None:
    with metrics_endpoint(settings(), REGISTRY) as port:
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        assert "apples_total 3.0" in page
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


def test_who_asks_for_openmetrics_gets_it() -> None:
    registry = CollectorRegistry()
    Counter("pears", "Pears.", registry=registry).inc(1, {"trace_id": "0af7651916cd43dd8448eb211c80319c"})
    with metrics_endpoint(settings(), registry) as port:
        wanted = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=wanted)
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
    with metrics_endpoint(settings(), registry) as port:
        await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/metrics")
    assert [maker is threading.current_thread() for maker in makers] == [False]


async def test_servers_that_both_say_so_share_a_port() -> None:
    first, port = open_server(settings(reuse_port=True), [])
    second, same = open_server(settings(reuse_port=True, port=port), [])
    assert same == port
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        open_server(settings(port=port), [])
    for server in (first, second):
        await server.stop(None)
