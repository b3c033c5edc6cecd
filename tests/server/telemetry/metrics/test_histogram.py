"""server.telemetry.metrics.histogram: against `prometheus_client`'s own."""

from concurrent.futures import ThreadPoolExecutor

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from server.telemetry.metrics.histogram import Histogram

BOUNDS = (0.001, 0.5, 1, 60)
VALUES = (0.0, 0.001, 0.0011, 0.5, 0.7, 1.0, 59.9, 60.0, 61.0)
TRACE = "0af7651916cd43dd8448eb211c80319c"


def samples(registry: CollectorRegistry) -> list[Sample]:
    [family] = registry.collect()
    return [one for one in family.samples if not one.name.endswith("_created")]


def test_it_tells_what_the_librarys_own_tells() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    one = Histogram("seconds", "How long.", ["model", "phase"], BOUNDS, ours)
    other = prometheus_client.Histogram("seconds", "How long.", ["model", "phase"], registry=theirs, buckets=BOUNDS)
    for labels in (("en-pt", "queue"), ("en-pt", "decode")):
        for value in VALUES:
            trace_id = TRACE if value > 0.5 else ""
            one.labels(*labels).observe(value, trace_id)
            other.labels(*labels).observe(value, {"trace_id": trace_id} if trace_id else None)
    found, expected = samples(ours), samples(theirs)
    assert [one[:4] for one in found] == [one[:4] for one in expected]
    told = [one.exemplar and one.exemplar[:2] for one in found]
    assert told == [one.exemplar and one.exemplar[:2] for one in expected]
    assert sum(one is not None for one in told) == 2 * 3  # of the buckets that have a traced value


def test_a_series_counts_from_zero() -> None:
    registry = CollectorRegistry()
    Histogram("seconds", "How long.", ["model"], BOUNDS, registry).labels("en-pt")
    assert {one.value for one in samples(registry)} == {0.0}


def test_threads_lose_no_value() -> None:
    registry = CollectorRegistry()
    histogram = Histogram("seconds", "How long.", ["model"], BOUNDS, registry)

    def count(thread: int) -> None:
        for _ in range(5000):
            histogram.labels("en-pt").observe(0.25)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert registry.get_sample_value("seconds_count", {"model": "en-pt"}) == 20_000
    assert registry.get_sample_value("seconds_sum", {"model": "en-pt"}) == 5000.0
