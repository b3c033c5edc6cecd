"""Which workers hang.

The seconds are those that the watching thread has had, so that a process that was stopped has not hung.
"""

from collections.abc import Sequence

from engine.supervision.policy import Supervision
from engine.supervision.worker import Worker


class Watchdog:
    """Is asked now and then, and remembers."""

    def __init__(self, policy: Supervision) -> None:
        self._policy = policy
        self._seen: dict[Worker, tuple[int, float]] = {}
        """The turn that each worker was in, and for how many seconds."""
        self._begun = False
        """One of them has made a turn."""

    def hung(self, workers: Sequence[Worker], elapsed_s: float) -> list[tuple[Worker, float]]:
        """Those whose turn takes too long, and for how long it has. `elapsed_s`: since it was asked before."""
        before, self._seen = self._seen, {}
        for worker in workers:
            turn, seconds = before.get(worker, (None, 0.0))
            if worker.in_turn:
                self._seen[worker] = worker.turns, seconds + elapsed_s if worker.turns == turn else 0.0
        self._begun = self._begun or any(worker.turns for worker in workers)
        return [
            (worker, seconds)
            for worker, (_, seconds) in self._seen.items()
            if seconds > self._policy.patience_s(worker.expected_s, not self._begun)
        ]
