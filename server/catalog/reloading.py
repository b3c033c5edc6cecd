"""What the API asks of whoever takes up new versions of models."""

from dataclasses import dataclass
from typing import Protocol


class Report(Protocol):
    """How a candidate compared. See `dragoman.v1.ShadowReport`."""

    compared: int
    equal: int
    score_difference: float
    dropped: int

    @property
    def slowdown(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What came of it."""

    name: str
    former_sha256: str
    """Of the package that was served before."""
    report: Report | None = None


class Reload(Protocol):
    """Takes up what is in a model's package folder now."""

    async def __call__(self, name: str) -> Reloaded:
        """Raises ModelNotFound, CandidateRefused or ReloadUnderWay. Empty: the default model."""
        ...
