"""What waits of one caller and class, and what it may spend."""

from collections import OrderedDict

from engine.request import Request

INTERACTIVE_WEIGHT, BULK_WEIGHT = 4.0, 1.0
"""What a caller's urgent requests get of the work for what its other ones get."""


class Flow:
    """What waits of one caller and class, first come, first served."""

    def __init__(self, caller: str, bulk: bool) -> None:
        self.caller = caller
        self.weight = BULK_WEIGHT if bulk else INTERACTIVE_WEIGHT
        self.requests: OrderedDict[Request, None] = OrderedDict()
        self.backlog = 0.0
        """Seconds of a worker that its requests will cost."""
        self.deficit = 0.0
        """Seconds of a worker that it may spend. Below zero: it was given more than was expected."""
        self.its_turn = False
        """It has got its quantum in this round."""
        self.held: dict[int, int] = {}
        """Rows that its requests hold, of each worker."""
        self.beams: dict[int, int] = {}
        """Those of them that beam searches hold."""

    @property
    def head(self) -> Request:
        """Its next request."""
        return next(iter(self.requests))

    def hold(self, worker: int, rows: int) -> None:
        """A request takes so many rows; or gives them back, if it is less than 0."""
        self.held[worker] = max(0, self.held.get(worker, 0) + rows)
        if abs(rows) > 1:
            self.beams[worker] = max(0, self.beams.get(worker, 0) + rows)
