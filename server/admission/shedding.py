"""Which calls are refused before their request is read, where most of a caller's are refused anyway.

See docs/decisions/0061-refused-unread.md.
"""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from server.admission.accounts import Accounts
from server.errors import Overloaded, TooManyCalls, WouldBeLate
from server.errors.retry import apart
from server.telemetry.calls import Call, current_call

TIMES, MORE = 2.0, 10.0
"""Calls that are looked at: so many for each that is taken, and so many more a second. So admission has some to choose
from, and sees when there is room, also where it refuses large calls and would take small ones. (Beyer et al., "Site
Reliability Engineering", 2016, chapter 21, where clients do so.)"""
WINDOW_S = 1.0
"""Calls count for so long: their weight falls to 1/e."""
HOLD_S = 0.1
"""So long after a refusal calls may be shed. Without new ones there is room again."""
MORE_TIME = 1.1
"""Whoever has so many times as long as those who were refused is looked at: it may well be answered."""

Kind = tuple[str, str, bool]
"""Calls of which it may be said what becomes of one by what became of others: their caller, method, and whether they
leave their caller's share to others (`Call.bulk`)."""


@dataclass(slots=True)
class Account:
    """Of calls of one kind, some of which are refused. They are counted by weight."""

    counted_s: float
    """When the weights are of."""
    calls: float = 1.0
    taken: float = 1.0
    """Of those. What is looked at counts as taken until it is refused."""
    refused_s: float = -math.inf
    """When admission last refused one."""
    left_s: float = 0.0
    """That the most patient of those had; infinite where more time would not have helped."""
    retry_after_s: float = 0.0
    """What the last one was told."""

    def count(self, now: float) -> None:
        """One more call."""
        weight = math.exp((self.counted_s - now) / WINDOW_S)
        self.calls, self.taken, self.counted_s = self.calls * weight + 1, self.taken * weight, now

    def holds(self, now: float) -> bool:
        """Whether one was refused just now."""
        return now - self.refused_s < HOLD_S

    @property
    def too_many(self) -> float:
        """Share of the calls that need not be looked at."""
        return 1 - (TIMES * self.taken + MORE) / self.calls


class Shedding:
    """Refuses calls as they come, by chance, so that what they would take is left to those that are answered.

    Callers and methods none of whose calls are refused do not notice. Used on the event loop only.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, chance: Callable[[], float] = random.random
    ) -> None:
        """`chance`: a number from 0 to 1."""
        self._clock, self._chance = clock, chance
        self._accounts = Accounts[Kind, Account]()

    def look(self) -> "Look":
        """A context in which the call that runs is looked at. Raises TooManyCalls when it is entered."""
        return Look(self, current_call())

    def check(self, call: Call, kind: Kind) -> None:
        """Raises TooManyCalls."""
        account = self._accounts.get(kind)
        if account is None:
            return
        now = self._clock()
        account.count(now)
        held = account.holds(now) and _left_s(call, now) <= MORE_TIME * account.left_s
        if held and self._chance() < account.too_many:
            raise TooManyCalls(account.calls, account.taken, apart(account.retry_after_s, self._chance))
        account.taken += 1

    def refused(self, call: Call, kind: Kind, error: Overloaded | WouldBeLate) -> None:
        """A call that was looked at is refused."""
        if error.retry_after_s is None:  # it was taken, and then it was too late for it
            return
        now, account = self._clock(), self._accounts.get(kind)
        if account is None:
            account = self._accounts.open(kind, Account(now), lambda one: now - one.refused_s < WINDOW_S)
        left_s = math.inf if isinstance(error, Overloaded) else _left_s(call, now)
        account.left_s = max(left_s, account.left_s) if account.holds(now) else left_s
        account.taken, account.refused_s = max(0.0, account.taken - 1), now
        account.retry_after_s = error.retry_after_s


class Look:
    """What a call runs in that may be shed."""

    __slots__ = ("_call", "_kind", "_shedding")

    def __init__(self, shedding: Shedding, call: Call) -> None:
        self._shedding, self._call = shedding, call
        # As it comes: a document says that it is bulk when it has been read.
        self._kind = (call.caller, call.method, call.bulk)

    def __enter__(self) -> None:
        self._shedding.check(self._call, self._kind)

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        if isinstance(raised, Overloaded | WouldBeLate):
            self._shedding.refused(self._call, self._kind, raised)


def _left_s(call: Call, now: float) -> float:
    return math.inf if call.deadline is None else call.deadline - now
