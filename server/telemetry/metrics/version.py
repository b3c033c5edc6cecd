"""New versions of models, and how they compare. docs/metrics.md says what each is good for."""

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge


class Compared(Protocol):
    """What is known of a candidate."""

    @property
    def score_difference(self) -> float:
        """Largest, of equal texts."""
        ...

    @property
    def slowdown(self) -> float:
        """1: it takes as long."""
        ...


class VersionMetrics:
    """What is counted of them. Used on the event loop only."""

    def __init__(self, registry: CollectorRegistry, models: Iterable[str]) -> None:
        """Registers every metric."""
        self._reloads = Counter(
            "dragoman_model_reloads", "New versions of a model.", ["model", "result"], registry=registry
        )
        self._refused = Gauge(
            "dragoman_model_reload_refused",
            "1 while the last new version of a model is not the one that is served.",
            ["model"],
            registry=registry,
        )
        self._contents = Counter(
            "dragoman_shadow_contents",
            "Live contents that a candidate was to answer, too.",
            ["model", "result"],
            registry=registry,
        )
        self._difference = Gauge(
            "dragoman_shadow_score_difference",
            "Largest difference of a candidate's scores from those of equal texts.",
            ["model"],
            registry=registry,
        )
        self._slowdown = Gauge(
            "dragoman_shadow_slowdown",
            "Time that a candidate takes, for that of the version that serves.",
            ["model"],
            registry=registry,
        )
        for model in models:
            for result in ("promoted", "refused"):
                self._reloads.labels(model, result)
            self._refused.labels(model).set(0)

    def promoted(self, model: str) -> None:
        """It serves."""
        self._reloads.labels(model, "promoted").inc()
        self.current(model)

    def current(self, model: str) -> None:
        """What is in its folder is what serves."""
        self._refused.labels(model).set(0)

    def refused(self, model: str) -> None:
        """It does not, and the one before does."""
        self._reloads.labels(model, "refused").inc()
        self._refused.labels(model).set(1)

    def compared(self, model: str, equal: bool, so_far: Compared) -> None:
        """A candidate has answered a content."""
        self._contents.labels(model, "equal" if equal else "different").inc()
        self._difference.labels(model).set(so_far.score_difference)
        self._slowdown.labels(model).set(so_far.slowdown)

    def dropped(self, model: str, contents: int) -> None:
        """It was not asked, or had no room."""
        self._contents.labels(model, "dropped").inc(contents)
