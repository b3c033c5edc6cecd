"""The seam between the options of a request and the scores of its rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

NO_TARGET, NO_SOURCE = -1, -2
"""Where a row has no token. Never equal, so that what is missing in one is not found in the other."""


@dataclass(frozen=True)
class Seen:
    """What rows have seen by now."""

    targets: NDArray[np.int64]
    """What the decoder was fed, the prefix included [rows, longest]. NO_TARGET stands in front of shorter ones."""
    source_ids: Sequence[Sequence[int]]
    """The source of each row."""
    chosen: NDArray[np.intp]
    """How many of its target's tokens were chosen [rows]: the last ones."""

    @cached_property
    def sources(self) -> NDArray[np.int64]:
        """The same [rows, longest]. NO_SOURCE stands behind shorter ones."""
        sources = np.full((len(self.source_ids), max(map(len, self.source_ids))), NO_SOURCE)
        for row, source in enumerate(self.source_ids):
            sources[row, : len(source)] = source
        return sources


class Processor(Protocol):
    """Is equal to another one that does the same, and can be hashed: rows with equal ones are processed together."""

    @property
    def of_logits(self) -> bool:
        """Does something else to logits than to log-probabilities."""
        ...

    @property
    def raises(self) -> bool:
        """May raise a score."""
        ...

    @property
    def largest_id(self) -> int:
        """The largest token id that it names, beyond those of source and target."""
        ...

    def __call__(self, scores: NDArray[np.float32], seen: Seen) -> None:
        """Changes the scores of the next tokens in place [rows, vocabulary]. One of -inf stays so.

        They are logits in greedy search and log-probabilities in beam search, as in `generate`.
        """
        ...
