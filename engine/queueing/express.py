"""Who goes to the express worker: whoever would wait for steps that are long because of one other caller.

Every row of a batch waits for all others, so a caller with wide searches, which he may have, makes the steps of a
modest one as long as his own. The express worker has a batch of a few rows beside those of the others, and the system
shares the cores between them. See docs/decisions/0058-an-express-worker.md.
"""

from engine.request import Request

EXPRESS_ROWS = 4
"""Of the express worker's batch."""
FEWEST_BESIDE = 32
"""Rows of each other worker where there is an express one."""
EXPRESS_TOKENS = 256
"""Of the longest that goes there, given targets included, and most source tokens of those that join together."""
OWNED_SHARE = 8
"""Nobody's rows make steps long that are not more than so large a part of a batch: an eighth."""


def express_rows(rows: int) -> int:
    """Of an express worker beside batches of so many rows. 0: its rows are better theirs, whose steps are short."""
    return EXPRESS_ROWS if rows >= FEWEST_BESIDE else 0


def places(rows: int) -> int:
    """What a request takes of an express worker that wants so many rows: who wants none comes in the place of one."""
    return max(1, rows)


def may_go(request: Request, free_rows: int) -> bool:
    """Whether an express worker with so many free rows has room for a request."""
    return places(request.rows) <= free_rows and len(request.source_ids) + request.given_tokens <= EXPRESS_TOKENS


class Occupancy:
    """Which callers hold the rows of each worker, but for the express one."""

    def __init__(self, rows: int) -> None:
        """`rows`: of each worker."""
        self._few = max(1, rows // OWNED_SHARE)
        self._held: dict[int, dict[str, int]] = {}
        """Rows by worker and caller."""
        self.owners: dict[int, str] = {}
        """By worker: who holds more than half of the rows in use, and more than a few."""

    def hold(self, worker: int, caller: str, rows: int) -> None:
        """A caller takes so many rows; or gives them back, if it is less than 0."""
        held = self._held.setdefault(worker, {})
        held[caller] = held.get(caller, 0) + rows
        if held[caller] <= 0:
            del held[caller]
        first = max(held, key=held.__getitem__, default="")
        if held and held[first] > max(self._few, sum(held.values()) / 2):
            self.owners[worker] = first
        else:
            self.owners.pop(worker, None)

    def restarted(self, worker: int) -> None:
        """Nobody holds rows of it."""
        self._held.pop(worker, None)
        self.owners.pop(worker, None)

    def may_hinder(self, caller: str) -> bool:
        """Whether a caller has no row, and some worker is another one's."""
        return bool(self.owners) and not any(caller in held for held in self._held.values())
