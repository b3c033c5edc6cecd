"""What the canary finds. docs/metrics.md says what each is good for."""

from prometheus_client import CollectorRegistry, Counter, Gauge

RESULTS = {True: "equal", False: "different"}


class CanaryFamilies:
    """The families that all models share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers every metric."""
        self.answers = Counter(
            "dragoman_canary_answers", "Known answers that were asked for.", ["model", "result"], registry=registry
        )
        self.differs = Gauge(
            "dragoman_canary_differs",
            "1 if the last known answers were not as they must be.",
            ["model"],
            registry=registry,
        )


class CanaryMetrics:
    """What is counted of one model's known answers."""

    def __init__(self, families: CanaryFamilies, model: str) -> None:
        """`model`: the name in the label of every series."""
        self._answers = {equal: families.answers.labels(model, result) for equal, result in RESULTS.items()}
        self._differs = families.differs.labels(model)

    def answered(self, equal: bool) -> None:
        """The engine has said what it must, or something else."""
        self._answers[equal].inc()

    def checked(self, equal: bool) -> None:
        """All have been asked."""
        self._differs.set(not equal)
