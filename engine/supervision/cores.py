"""Who computes where several models are served: worker n of every model at core n, one turn at a time.

Whoever has spent the least time there goes next (start-time fair queueing: Goyal, Vin and Cheng 1996). So a model with
long steps gets no more of a core than one with short steps, and one that was idle has saved nothing up. A model that is
alone waits for nobody: a turn costs it two comparisons.

A seat has a weight: what it takes counts for so many times as much, so that a model which may wait, such as a candidate
that is compared with the one it is to replace, gets that much less where others have something to do.
"""

import threading

BEHIND = 16.0
"""Weight of a model that lets the others go first. It gets some turns all the same: nothing waits for ever."""


class Core:
    """Taken by one seat at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder: Seat | None = None
        self.waiting: list[Seat] = []
        self.now_s = 0.0
        """What whoever comes has spent, at least."""

    def pass_on(self) -> None:
        """To whoever has spent the least. Called with the lock."""
        former, self.holder = self.holder, min(self.waiting, key=lambda seat: seat.spent_s, default=None)
        if (told := self.holder or former) is not None:
            self.now_s = max(self.now_s, told.spent_s)
        if self.holder is not None:
            self.waiting.remove(self.holder)
            self.holder.called.set()


class Cores:
    """As many as there are workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cores: list[Core] = []

    def seat(self, number: int) -> "Seat":
        """A new one, of a worker of this number."""
        with self._lock:
            self._cores += [Core() for _ in range(number + 1 - len(self._cores))]
            return Seat(self._cores[number])


class Seat:
    """A worker's at its core. Its methods but `give_up` are for the worker's thread alone."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._given_up = False
        self.weight = 1.0
        self.spent_s = 0.0
        """Of the core, times the weight. Where others were there, as much as they had, at least."""
        self.called = threading.Event()

    @property
    def rivals(self) -> float:
        """Others that compute here, or wait to: what they get of the core for what this one gets."""
        others = {self._core.holder, *self._core.waiting} - {None, self}
        return sum(self.weight / seat.weight for seat in others if seat is not None)

    def spend(self, seconds: float) -> None:
        """A turn took so long."""
        self.spent_s += self.weight * seconds

    def take(self) -> None:
        """Waits for its turn. It keeps the core from turn to turn, until somebody waits who has spent less."""
        core = self._core
        if core.holder is self and not core.waiting:
            return
        with core.lock:
            if self._given_up:
                return
            if core.holder is self:
                if all(self.spent_s <= seat.spent_s for seat in core.waiting):
                    return
            else:
                self.spent_s = max(self.spent_s, core.now_s if core.holder is None else core.holder.spent_s)
            self.called.clear()
            core.waiting.append(self)
            if core.holder in (None, self):
                core.pass_on()
        self.called.wait()

    def leave(self) -> None:
        """It has nothing to do: others may have the core."""
        if self._core.holder is self:
            with self._core.lock:
                if self._core.holder is self:
                    self._core.pass_on()

    def give_up(self) -> None:
        """Whatever it does or waits for, it is nobody's any more. Called on any thread."""
        with self._core.lock:
            self._given_up = True
            if self._core.holder is self:
                self._core.pass_on()
            elif self in self._core.waiting:
                self._core.waiting.remove(self)
                self.called.set()
