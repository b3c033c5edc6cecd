"""Who may enter: a call is refused at once, before it costs anything, rather than kept waiting for nothing."""

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine.queueing.cost import Work
from server.admission.quotas import Quotas
from server.errors import Overloaded, ServerError, WouldBeLate
from server.errors.retry import apart

WINDOW = 64
"""Answers that tell how fast the server is just now."""
RETRY_S = (0.05, 30.0)
"""Shortest and longest advice. Shorter would bring callers back before anything changed."""
FIRST_RETRY_S = 1.0
"""Advice before there were answers to learn from."""
TURN_S = 0.1
"""Most that a caller who is told to come back puts others off, whatever its call costs: the queue is fair."""
MOST_TICKETS = 4096
"""Callers whose own tickets are remembered."""
PLACES = 7
"""A caller may have so many times the places that are left to others: seven eighths of the queue where nobody else
waits, less where others do. So one who sends anything leaves room. (Choudhury and Hahne, "Dynamic Queue Length
Thresholds for Shared-Memory Packet Switches", 1998.)"""
SURE = 0.65
"""Share of the time left that an answer may be expected to take: half of those that were expected just in time would be
late, and what they cost is lost."""


class Engine(Protocol):
    """What admission asks of it."""

    @property
    def waiting(self) -> int:
        """Contents in the queue."""
        ...

    def waiting_of(self, caller: str) -> int:
        """Those of a caller."""
        ...

    @property
    def idle(self) -> bool:
        """Nothing runs, and nothing waits."""
        ...

    def finish_s(self, work: Work, reserved: float) -> float:
        """In how many seconds work would be done that came now, behind other work that costs so many."""
        ...

    def cost_of(self, work: Work) -> float:
        """Seconds of a worker that work takes."""
        ...


class Admission:
    """Keeps the queue short, and what is in it in time. Used on the event loop only."""

    def __init__(
        self,
        max_waiting: int,
        engine: Engine,
        clock: Callable[[], float] = time.perf_counter,
        chance: Callable[[], float] = random.random,
        quotas: Quotas | None = None,
    ) -> None:
        """`chance`: a number from 0 to 1. quotas: None lets callers ask for as much as there is."""
        self._quotas = quotas
        self._max_waiting, self._engine = max_waiting, engine
        self._clock, self._chance = clock, chance
        self._reserved, self._reserved_cost = dict[str, int](), 0.0
        """Contents of each caller that were let in and are not in the queue yet, and what all of them cost."""
        self._refusal: Callable[[], ServerError] | None = None
        self._answers: deque[float] = deque(maxlen=WINDOW)
        """When the last contents were answered."""
        self._turns_until, self._own_tickets = 0.0, dict[str, float]()
        """When those who are told to come back will all have had their turn, and when the next of each caller may."""

    @property
    def open(self) -> bool:
        """Whether it was not closed."""
        return self._refusal is None

    def permit(self, work: Work, deadline: float | None = None, goes_on: bool = False) -> "Permit":
        """Keeps room in the queue for a call, from now on and while it is made ready, until the permit is left.

        Raises QuotaExceeded, Overloaded, WouldBeLate, or what `close` was given. deadline: by time.perf_counter
        goes_on: the call was let in before, with texts that became these. Its caller's quota is not asked again, where
        it would be refused for ever for what it owes itself; these are owed, too
        """
        if self._refusal is not None:
            raise self._refusal()
        cost = self._engine.cost_of(work)
        if self._quotas is not None and not goes_on:
            self._quotas.check(work.caller, work.contents, cost)
        queued = self._engine.waiting + sum(self._reserved.values())
        if not queued:  # the pace so far was the callers', not the server's
            self._answers.clear()
        self._check_places(work, queued)
        if deadline is not None:
            self._check_deadline(work, deadline)
        if self._quotas is not None:
            self._quotas.take(work.caller, work.contents, cost)
        self._reserved[work.caller] = self._reserved.get(work.caller, 0) + work.contents
        self._reserved_cost += cost
        return Permit(self, work, cost)

    def leave(self, work: Work, cost: float) -> None:
        """What was let in is in the queue, or will not be."""
        self._reserved_cost -= cost
        self._reserved[work.caller] -= work.contents
        if not self._reserved[work.caller]:
            del self._reserved[work.caller]

    def answered(self) -> None:
        """A content left the server."""
        self._answers.append(self._clock())

    def charge(self, quotas: Quotas) -> None:
        """Callers have these quotas from now on."""
        self._quotas = quotas

    def close(self, refusal: Callable[[], ServerError]) -> None:
        """Refuses every call from now on, for the given reason."""
        self._refusal = refusal

    def _check_places(self, work: Work, queued: int) -> None:
        """Raises Overloaded. Whoever has nothing in the queue yet may bring as much as fits."""
        waiting, most, left = queued + work.contents, self._max_waiting, self._max_waiting - queued
        if waiting > most:
            raise Overloaded(waiting, most, self._ticket(work, waiting - most))
        own = self._engine.waiting_of(work.caller) + self._reserved.get(work.caller, 0) if queued else 0
        share = (own + left) * PLACES // (PLACES + 1)
        if own and own + work.contents > share:
            waiting = own + work.contents
            raise Overloaded(waiting, most, self._ticket(work, waiting - share), share)

    def _check_deadline(self, work: Work, deadline: float) -> None:
        """Raises WouldBeLate. A server that is idle always tries: what it expects may be wrong, and so it learns."""
        left = deadline - self._clock()
        if left > 0 and not self._reserved and self._engine.idle:
            return
        seconds = self._engine.finish_s(work, self._reserved_cost)
        if seconds > SURE * left:
            ticket_s = None  # of a call that has no time, none that comes again has any
            if left > 0:
                ticket_s = self._ticket_s(work.caller, seconds - SURE * left, self._engine.cost_of(work))
            raise WouldBeLate(seconds / SURE, left, ticket_s)

    def _ticket(self, work: Work, excess: int) -> float:
        """When there should be room for so many more contents, at the speed of the last answers."""
        if len(self._answers) < 2:
            return self._ticket_s(work.caller, FIRST_RETRY_S, 0.0)
        seconds_each = (self._answers[-1] - self._answers[0]) / (len(self._answers) - 1)
        return self._ticket_s(work.caller, excess * seconds_each, work.contents * seconds_each)

    def _ticket_s(self, caller: str, room_s: float, taken_s: float) -> float:
        """In how many seconds to come back: behind those that were told before, at not quite the same time.

        room_s: when there is room for one. taken_s: how long it then takes it
        """
        now = self._clock()
        shortest, longest = RETRY_S
        own = self._own_tickets.get(caller, 0.0)
        if own > now:
            at = max(now + room_s, own)
        else:
            turn = max(now, self._turns_until)
            at, self._turns_until = turn + room_s, turn + min(taken_s, TURN_S)
            self._forget_tickets(now)
        at = min(at, now + longest)
        self._own_tickets[caller] = min(at + taken_s, now + longest)
        return min(apart(max(at - now, shortest), self._chance), longest)

    def _forget_tickets(self, now: float) -> None:
        """Those whose time has come; all of them, if they are too many."""
        if len(self._own_tickets) >= MOST_TICKETS:
            self._own_tickets = {caller: at for caller, at in self._own_tickets.items() if at > now}
        if len(self._own_tickets) >= MOST_TICKETS:
            self._own_tickets.clear()


class Permit:
    """Room in the queue that is kept for a call: a context, to be left when its contents are there."""

    __slots__ = ("_admission", "_cost", "_work")

    def __init__(self, admission: Admission, work: Work, cost: float) -> None:
        self._admission, self._work, self._cost = admission, work, cost

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._admission.leave(self._work, self._cost)
