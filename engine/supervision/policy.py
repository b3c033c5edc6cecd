"""When a worker is given up, and when all of them are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Supervision:
    """How workers that fail go on. Without a word none does: the first failure is the runner's."""

    restarts: int = 0
    """So many are made in `within_s`; one more would be too many."""
    within_s: float = 600.0
    hang_s: float = 10.0
    """A turn that takes no longer has not hung."""
    hang_times: float = 10.0
    """Nor has one that takes no longer than so many times what is expected."""
    first_s: float = 120.0
    """Nor the very first one of all workers: a device compiles and captures then."""
    watched: bool = True
    """A worker that hangs has failed."""
    nice: int = 0
    """So much nicer workers are than the process's main thread: see `engine.niceness`."""

    def patience_s(self, expected_s: float, first: bool = False) -> float:
        """How long a turn may take. first: no turn has ended yet."""
        return self.first_s if first else max(self.hang_s, self.hang_times * expected_s)


UNSUPERVISED = Supervision(watched=False)
