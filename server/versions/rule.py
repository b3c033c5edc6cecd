"""Whether a candidate answers as the version does that serves: what was compared, and the rule that decides."""

from dataclasses import dataclass, field
from math import ceil


@dataclass(frozen=True, slots=True)
class Rule:
    """What a candidate must keep to. See docs/configuration.md."""

    share: float
    """Of the live requests, which it answers too. 0: none, and nothing is compared."""
    contents: int
    """That are compared."""
    equal_texts: float
    """Least share of texts that are equal."""
    score_difference: float
    """Most that two scores of one text may differ."""
    slowdown: float
    """Most seconds of a worker for each one that the version takes that serves."""
    timeout_s: float
    """In which so many must have come."""


@dataclass(slots=True)
class Comparison:
    """What is known so far."""

    compared: int = 0
    equal: int = 0
    score_difference: float = 0.0
    dropped: int = 0
    _seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Of a worker: the candidate's, and those of the one that serves."""

    @property
    def slowdown(self) -> float:
        """1: both take as long."""
        candidate, served = self._seconds
        return candidate / served if served else 1.0

    def add(self, equal: bool, score_difference: float, candidate_s: float, served_s: float) -> None:
        """One more content. Scores of different texts say nothing: those texts count already."""
        self.compared += 1
        self.equal += equal
        if equal:
            self.score_difference = max(self.score_difference, score_difference)
        self._seconds[0] += candidate_s
        self._seconds[1] += served_s

    def objection(self, rule: Rule) -> str | None:
        """Why the candidate is refused, as far as that is known already. None: there is no reason yet."""
        different = self.compared - self.equal
        most = rule.contents - ceil(round(rule.equal_texts * rule.contents, 6))
        if different > most:
            return (
                f"{different} of {self.compared} texts are different; of {rule.contents} no more than {most} may be "
                "(--shadow-equal-texts)"
            )
        if self.score_difference > rule.score_difference:
            return (
                f"two scores of one text differ by {self.score_difference:.3g}; by {rule.score_difference:g} they may "
                "(--shadow-score-difference)"
            )
        if self.compared >= rule.contents and self.slowdown > rule.slowdown:
            return f"it takes {self.slowdown:.2f} x the time; {rule.slowdown:g} x it may (--shadow-slowdown)"
        return None

    def told(self) -> str:
        """For the log."""
        return (
            f"{self.equal} of {self.compared} texts equal, scores differ by at most {self.score_difference:.2g}, "
            f"{self.slowdown:.2f} x the time, {self.dropped} not compared"
        )
