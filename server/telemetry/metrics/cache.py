"""What the cache of answers counts. docs/metrics.md says what each is good for."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class AnswerCacheMetrics:
    """What is counted of the answers of all models that are kept. Used on the event loop only."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers every metric."""
        self._hits = Counter(
            "dragoman_answer_cache_hits", "Contents that were answered before, and the answer kept.", registry=registry
        )
        self._misses = Counter(
            "dragoman_answer_cache_misses", "Contents whose answer was looked for and not kept.", registry=registry
        )
        self._evictions = Counter(
            "dragoman_answer_cache_evictions", "Kept answers that made room for others.", registry=registry
        )
        self._bytes = Gauge("dragoman_answer_cache_bytes", "Size of the answers that are kept.", registry=registry)
        self._capacity = Gauge(
            "dragoman_answer_cache_capacity_bytes", "Size that the kept answers may have.", registry=registry
        )

    def hit(self) -> None:
        """An answer was there."""
        self._hits.inc()

    def missed(self) -> None:
        """An answer was not there."""
        self._misses.inc()

    def evicted(self) -> None:
        """An answer made room."""
        self._evictions.inc()

    def holds(self, size_bytes: int) -> None:
        """All that are kept have this size."""
        self._bytes.set(size_bytes)

    def capacity(self, size_bytes: int) -> None:
        """They may have this size."""
        self._capacity.set(size_bytes)
