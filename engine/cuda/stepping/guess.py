"""What a device has made the input of its next step, before the host has said what that is to be."""

import numpy as np
from numpy.typing import NDArray

from engine.cuda.lanes.feed import Fed
from engine.cuda.lanes.layout import Layout
from engine.cuda.stepping.ahead import Step


class Guess:
    """The input of a step, and that step, which may be under way.

    The step may have rows that the batch has no more: they do no harm. So nothing is lost where a search is over.
    """

    def __init__(self, step: Step, fed: Fed, rows: NDArray[np.intp], first: NDArray[np.int32], begun: bool) -> None:
        """Of the rows of a step that is over.

        step: the next one, in whose lane the input is; `fed` is a copy of that on the host
        rows: in which row of the step before each row of the batch was
        first: the first row of the search of each row of these steps
        begun: the step is under way
        """
        self.step, self.begun = step, begun
        self._fed, self._parents, self._first = fed, rows, first

    def take(self, parents: NDArray[np.intp]) -> None:
        """Row i of the batch continues what was row parents[i]."""
        self._parents = self._parents[parents]

    def rows(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        slots: NDArray[np.int32],
        layout: Layout,
    ) -> NDArray[np.intp] | None:
        """In which rows of the step those are that are to be fed this [live]. None: it is another step.

        slots: of each row, and its source slot [2, live]
        """
        rows = self._first[self._parents] + layout.ranks
        if int(rows.max()) >= self.step.bucket.rows:
            return None
        fed = self._fed.numbers[:, rows]
        right = (
            (self._fed.ids[rows] == token_ids).all()
            and (fed[0] == positions).all()
            and (fed[2:4] == slots).all()
            and (fed[4] == self._parents).all()
        )
        return rows if right else None
