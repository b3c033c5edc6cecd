"""server.telemetry.exposition: the same page as prometheus_client's, in both formats, and faster."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from server.telemetry.call_metrics import CallMetrics
from server.telemetry.exposition import MetricsServer, Page
from tests.watch.families import TRACE, everything

values = st.floats(allow_nan=True, allow_infinity=True)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def check(registry: CollectorRegistry, page: Page) -> None:
    """Both formats are what the library writes."""
    assert lasting(page.write(openmetrics=False)) == lasting(generate_latest(registry))
    assert lasting(page.write(openmetrics=True)) == lasting(generate_openmetrics(registry))


def lasting(page: bytes) -> list[bytes]:
    """The lines but for those that change from one page to the next."""
    return [line for line in page.split(b"\n") if not line.startswith((b"process_", b"dragoman_threads "))]


def test_a_server_to_which_everything_has_happened() -> None:
    registry = CollectorRegistry()
    everything(registry, workers=3, methods=["a/A", "b/B"], codes=["OK", "INTERNAL"])
    check(registry, Page(registry))


def test_what_was_kept_does_not_grow_old() -> None:
    metrics = CallMetrics(registry := CollectorRegistry())
    page = Page(registry)
    for seconds in (0.003, 70.0):
        check(registry, page)
        metrics.rpc_started("m")
        metrics.rpc_finished("m", "OK", seconds, TRACE)
    check(registry, page)


@given(words, words, values, st.floats(0, 1e12), st.text("abc_", max_size=8).map("x".__add__))
def test_texts_and_numbers_of_every_kind(meaning: str, label: str, value: float, amount: float, name: str) -> None:
    registry = CollectorRegistry()
    Gauge(f"{name}_gauge", meaning, ["one", "another"], registry=registry).labels(label, "x").set(value)
    Gauge(f"{name}_bare", meaning, registry=registry).set(value)
    Counter(f"{name}_apples", meaning, ["b", "a"], registry=registry).labels("", label).inc(amount, {"trace_id": TRACE})
    Histogram(f"{name}_pears", meaning, registry=registry, buckets=[1, 1e3]).observe(amount, {"trace_id": TRACE})
    Info(f"{name}_melons", meaning, registry=registry).info({"kind": label})
    check(registry, Page(registry))


# Over HTTP


@pytest.fixture
def url() -> Iterator[str]:
    registry = CollectorRegistry()
    Gauge("apples", "Apples.", registry=registry).set(3)
    with MetricsServer("127.0.0.1", 0, registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


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
def test_the_format_is_the_one_that_is_asked_for(url: str, accept: str | None, openmetrics: bool) -> None:
    headers = {} if accept is None else {"Accept": accept}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers=headers)) as page:
        kind, body = page.headers["Content-Type"], page.read().decode()
    assert kind.startswith(
        "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain; version=0.0.4"
    )
    assert body.endswith("# EOF\n") == openmetrics
    assert "\napples 3.0\n" in body


def test_other_paths_are_not_found_and_queries_do_no_harm(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        urllib.request.urlopen(f"{url}/")
    caught.value.close()
    assert urllib.request.urlopen(f"{url}/metrics?x=1").status == 200


@pytest.mark.parametrize(("error", "logged"), [(BrokenPipeError(), 0), (ConnectionResetError(), 0), (ValueError(), 1)])
def test_a_scraper_that_leaves_is_not_worth_a_word(
    error: Exception, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    with MetricsServer("127.0.0.1", 0, CollectorRegistry()) as server:
        try:
            raise error
        except Exception:
            server.handle_error(None, None)
    assert len(caplog.records) == logged
