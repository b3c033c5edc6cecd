"""One life of a worker: a thread, and a running batch of its own."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import floor
from typing import Any

from engine.batch.running_batch import RunningBatch
from engine.errors import Closing
from engine.niceness import be_nicer
from engine.request import Request, tell
from engine.supervision.cores import Seat

FORGET = 0.99
"""How much of what a turn may take is remembered from turn to turn."""


@dataclass(slots=True)
class Suspects:
    """Requests that were on board when a life ended. The next one tries them before it takes others."""

    requests: deque[Request] = field(default_factory=deque)
    together: int = 1
    """So many are tried at a time. One: if that life ends too, it is known whose fault it is."""

    def take(self, free_rows: int) -> list[Request]:
        """The next ones, as far as they fit."""
        taken: list[Request] = []
        while self.requests and len(taken) < self.together and self.requests[0].rows <= free_rows:
            taken.append(self.requests.popleft())
            free_rows -= taken[-1].rows
        return taken


class Worker:
    """Receives, admits and steps until it is told to leave, or fails."""

    def __init__(
        self,
        number: int,
        batch: RunningBatch[Any],
        seat: Seat,
        receive: "Callable[[Worker], Sequence[Request] | None]",
        failed: "Callable[[Worker, Exception], None]",
        suspects: Suspects | None = None,
        nice: int = 0,
    ) -> None:
        """`seat`: where it makes its turns. receive: what it is to admit, for which it may wait; None ends it.

        failed: is told on its thread. nice: so much nicer its thread is than the main one
        """
        self.number, self.batch, self.seat = number, batch, seat
        self.suspects = suspects or Suspects()
        self.leaving = False
        self.trying = bool(self.suspects.requests)
        """It takes suspects on board, and nobody else."""
        self.turns = 0
        self.in_turn = False
        self.longest_s = 0.0
        """What a turn takes, of those that took long."""
        self._foreseen_s = 0.0
        """What the turn that it is in should take, by what it has to do."""
        self._receive, self._failed, self._nice = receive, failed, nice
        self.thread = threading.Thread(target=self._live, name=f"engine-{number}", daemon=True)

    @property
    def free_rows(self) -> int:
        """For requests that wait, if those that run are not to be late."""
        if self.trying or not self.batch.free_rows:
            return 0
        return max(0, floor(min(self.batch.free_rows, self.batch.most_rows - self.used_rows)))

    @property
    def used_rows(self) -> int:
        """That running requests have, or may come to need."""
        return self.batch.rows - self.batch.free_rows

    @property
    def expected_s(self) -> float:
        """What the turn that it is in may well take."""
        return max(self.longest_s, self._foreseen_s)

    def leave(self) -> None:
        """Ends after the turn that it is in, however long that takes."""
        self.leaving = True

    def fail(self, error: Exception) -> None:
        """Answers every request it has with an error. May be called from another thread."""
        self.batch.fail(error)
        with suppress(IndexError):  # the thread has taken the last one meanwhile, and answers it
            while self.suspects.requests:
                tell(self.suspects.requests.popleft(), error)

    def go_on(self) -> bool:
        """Makes one turn, for which it may wait. False: this life is over, and all that it had is seen to."""
        try:
            if self.batch.idle:
                self.seat.leave()
            requests = self._next()
            if requests is None:
                self.seat.give_up()
                self.batch.drop_cancelled()  # a version is closed once all callers are answered, or have left
                self.fail(Closing())
                return False
            self.seat.take()
            self._turn(requests)
        except Exception as error:
            self.seat.give_up()
            self._failed(self, error)
            return False
        return True

    def _live(self) -> None:
        be_nicer(self._nice)
        while self.go_on():
            pass

    def _next(self) -> Sequence[Request] | None:
        """What it admits now: first the suspects, one after the other, and then what it receives. None: end."""
        if self.trying and not self.leaving:
            if not self.batch.idle:
                return ()
            if requests := self.suspects.take(self.batch.free_rows):
                return requests
        self.trying = False
        return self._receive(self)

    def _turn(self, requests: Sequence[Request]) -> None:
        """Admits these, and makes a step. What the step before has said is delivered meanwhile."""
        began = time.perf_counter()
        self._foreseen_s = self.batch.turn_s(requests)
        self.in_turn = True
        if requests:
            self.batch.admit(requests)
        self.batch.step()
        self.in_turn = False
        self.turns += 1
        elapsed_s = time.perf_counter() - began
        self.seat.spend(elapsed_s + self.batch.beside_s)
        self.batch.beside_s = 0.0
        self.longest_s = max(elapsed_s, FORGET * self.longest_s)
