"""When a worker is given up, and when all of them are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Supervision:
    """How workers that fail go on. Without a word none does: the first failure is the runner's."""

    restarts: int = 0
    """So many are made in `within_s`; one more would be too many. With 0 no worker is watched either."""
    within_s: float = 600.0
    hang_s: float = 10.0
    """A turn that takes no longer has not hung."""
    hang_times: float = 10.0
    """Nor has one that takes no longer than so many times what is expected."""
    first_s: float = 120.0
    """Nor the very first one: a device compiles and captures then. Who follows one that failed knows what it knew."""

    def patience_s(self, turns: int, expected_s: float) -> float:
        """How long a turn may take, after so many turns. expected_s: 0 where nothing is known yet."""
        return max(self.hang_s, self.hang_times * expected_s) if turns or expected_s else self.first_s


UNSUPERVISED = Supervision()
