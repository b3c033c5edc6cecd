"""Files that are read again while the server runs. docs/metrics.md says what each is good for."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge


class ReloadMetrics:
    """What is counted of them. Used on the event loop only."""

    def __init__(self, registry: CollectorRegistry, sources: Iterable[str]) -> None:
        """Registers every metric. sources: names of what can be read again."""
        reloads = Counter(
            "dragoman_reloads", "Times that files were read again.", ["source", "result"], registry=registry
        )
        stale = Gauge(
            "dragoman_reload_failed",
            "1 while changed files cannot be used and older ones are.",
            ["source"],
            registry=registry,
        )
        self._loaded = {source: reloads.labels(source, "used") for source in sources}
        self._failed = {source: reloads.labels(source, "refused") for source in self._loaded}
        self._stale = {source: stale.labels(source) for source in self._loaded}

    def loaded(self, source: str) -> None:
        """What is new is in use."""
        self._loaded[source].inc()
        self._stale[source].set(0)

    def failed(self, source: str) -> None:
        """What is new cannot be used."""
        self._failed[source].inc()
        self._stale[source].set(1)
