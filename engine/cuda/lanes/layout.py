"""Which rows of a batch are of one search."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Outlook


@dataclass(frozen=True, slots=True)
class Layout:
    """The last rows belong to beam searches, each other row is a search of its own. See `Outlook`."""

    first: NDArray[np.intp]
    """The first row of each row's search [live]."""
    width: NDArray[np.intp]
    """How many rows that has [live]."""
    ranks: NDArray[np.intp]
    """Of each row in its search, 0 being the best [live]."""

    @classmethod
    def of(cls, outlook: Outlook, live: int) -> Self:
        """Of so many rows."""
        widths, alone = outlook.widths, live - int(outlook.widths.sum())
        starts = alone + np.cumsum(widths) - widths
        first = np.concatenate((np.arange(alone), np.repeat(starts, widths)))
        width = np.concatenate((np.ones(alone, np.intp), np.repeat(widths, widths)))
        return cls(first, width, np.arange(live) - first)
