"""The requests that a running batch is to answer, and what it has to say to them."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf

from engine.request import Event, Failed, Request, Tokens

log = logging.getLogger(__name__)


class Answers:
    """Used by one thread. Where that does not come back, another may fail or release all: nobody is answered twice."""

    def __init__(self) -> None:
        self.held: dict[Request, None] = {}
        """Requests that are not answered. Whoever takes one out, answers it."""
        self._most_rows, self._outdated = inf, False
        """The least `most_rows` of them, and whether the one that had it was taken out since it was found."""
        self.said: deque[tuple[Request, Event]] = deque()
        """What was said, not yet delivered."""

    def most_rows(self, rows: int) -> float:
        """Of so many rows. With more, one that is held would be late. Other threads ask too, at every call."""
        if not self.held:
            return rows
        return self._least() if self._outdated else self._most_rows

    def hold(self, requests: Sequence[Request]) -> list[Request]:
        """They are to be answered from here from now on. Returns those that were not before."""
        new = [request for request in requests if request not in self.held]
        self.held.update(dict.fromkeys(new))
        self._most_rows = min(self._most_rows, *(request.most_rows for request in new), inf)
        for request in new:
            request.withdraw = None  # from no queue any more: whoever cancels it takes no lock
        return new

    def say(self, request: Request, event: Event) -> None:
        """Delivered with all else that is said, while the next step is computed."""
        self.said.append((request, event))

    def deliver(self) -> None:
        """Hands over what was said."""
        while self.said:
            request, event = self.said.popleft()
            if isinstance(event, Tokens):
                request.told = True  # first: whoever takes the request away must see it
                if request in self.held:
                    request.deliver(event)
            else:
                self.give(request, event)
        if self._outdated:
            self._most_rows = self._least()
            self._outdated = False  # last: whoever asks meanwhile looks for itself

    def give(self, request: Request, event: Event) -> None:
        """Delivers a request's last event now, unless it has had one."""
        try:
            del self.held[request]
        except KeyError:
            return
        self._left(request)
        request.deliver(event)

    def forget(self, request: Request) -> None:
        """Nobody waits for it."""
        self.held.pop(request, None)
        self._left(request)

    def fail(self, error: Exception) -> None:
        """Delivers what was said, and answers all that is held with an error."""
        failures = [partial(self.give, request, Failed(error)) for request in list(self.held)]
        answers: list[Callable[[], None]] = [self.deliver, *failures]
        for answer in answers:
            _try(answer)

    def release(self, delivering: bool) -> list[Request]:
        """Gives away all that is held. delivering: what was said is delivered first."""
        if delivering:
            _try(self.deliver)
        released = []
        for request in list(self.held):
            with suppress(KeyError):  # its own thread has answered it meanwhile
                del self.held[request]
                released.append(request)
        return released

    def _left(self, request: Request) -> None:
        self._outdated |= request.most_rows <= self._most_rows < inf

    def _least(self) -> float:
        return min((request.most_rows for request in list(self.held)), default=inf)


def _try(answer: Callable[[], None]) -> None:
    try:
        answer()
    except Exception:  # whoever listens is gone; the others are answered all the same
        log.exception("a request could not be told what became of it")
