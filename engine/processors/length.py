"""How long targets become. Named after the logits processors of Hugging Face."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.processors.processor import Seen


@dataclass(frozen=True, slots=True)
class ExponentialDecayLengthPenalty:
    """Ending becomes likelier by a factor with every token, once a target has some. Below 1: less likely."""

    start: int
    factor: float
    end_ids: frozenset[int]
    of_logits = True

    @property
    def raises(self) -> bool:
        """May raise a score."""
        return self.factor > 1

    @property
    def largest_id(self) -> int:
        """The largest token id that it names."""
        return max(self.end_ids)

    def __call__(self, scores: NDArray[np.float32], seen: Seen) -> None:
        beyond = np.maximum(seen.chosen - self.start, 0)[:, None]
        columns = list(self.end_ids)
        old = scores[:, columns]
        with np.errstate(over="ignore", invalid="ignore"):
            more = old + np.abs(old) * (np.power(self.factor, beyond) - 1)
        scores[:, columns] = np.where((beyond > 0) & np.isfinite(old), more, old)
