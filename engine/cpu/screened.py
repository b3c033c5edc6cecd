"""Rows of which a screened decoder graph is not certain, computed whole."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Found
from engine.logits.graph import LogitsGraph
from kernels.library import Counters

TOGETHER = 16
"""Rows that are computed whole at once: more are no faster, and take memory."""


@dataclass(frozen=True, slots=True)
class Screened:
    """What a screened decoder graph gives of each row besides the best tokens, see `models.package.signature`."""

    certain: NDArray[np.bool_]
    normaliser: NDArray[np.float32]
    hidden: NDArray[np.float32]

    @classmethod
    def room(cls, rows: int, width: int) -> "Screened":
        """Memory for so many rows."""
        shape = rows, 1
        return cls(np.zeros(shape, np.bool_), np.zeros(shape, np.float32), np.zeros((rows, width), np.float32))

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """In the order of `signature.SCREENED`."""
        return self.certain, self.normaliser, self.hidden


class RowCounts:
    """Rows so far, and those that were computed whole. Whoever reads them holds no graph."""

    def __init__(self) -> None:
        self._lock, self._rows, self._whole_rows = Lock(), 0, 0

    def add(self, rows: int, whole_rows: int) -> None:
        """So many more."""
        with self._lock:
            self._rows += rows
            self._whole_rows += whole_rows

    def read(self) -> Counters:
        """As they are now."""
        with self._lock:
            return Counters(self._rows, self._whole_rows, saturated=0)


class WholeRows:
    """Mends what a screened decoder graph found. Used by many threads."""

    def __init__(self, logits: LogitsGraph) -> None:
        """The graph of logits is loaded."""
        self._logits, self._counts = logits, RowCounts()

    def mend(self, best: Found, screened: Screened) -> None:
        """Puts the best tokens of the whole row where the screened ones are not certain.

        The normaliser stays the screened one where that is usable, which does not depend on how many tokens are wanted:
        so no score depends on what others in the batch ask for.
        """
        uncertain = np.zeros(0, np.intp) if screened.certain.all() else np.flatnonzero(~screened.certain[:, 0])
        self._counts.add(len(screened.certain), len(uncertain))
        for start in range(0, len(uncertain), TOGETHER):
            rows = uncertain[start : start + TOGETHER]
            ids, scores, normaliser = self._logits.best(screened.hidden[rows], best.token_ids.shape[1])
            own = screened.normaliser[rows]
            best.token_ids[rows] = ids
            best.log_probs[rows] = scores - np.where(np.isnan(own), normaliser, own)

    @property
    def counters(self) -> Callable[[], Counters]:
        """What reads how many rows there were, and how many were computed whole."""
        return self._counts.read
