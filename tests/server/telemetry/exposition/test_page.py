"""server.telemetry.exposition.page: the same page as prometheus_client's, in both formats, and faster."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from server.telemetry.exposition.page import Page
from server.telemetry.metrics.call import CallMetrics
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
