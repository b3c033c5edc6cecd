"""What has begun to come in and is not all there."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from server.traffic.line import Line, Waiting
from server.traffic.timer import Timer

T = TypeVar("T")

PROMPT_S = 0.25
"""What is not there by then is slow. A message of some ten kilobytes is, from the other side of the world."""
HEARD_S = 0.05
"""So long one keeps its place, whoever else wants it: it may be there already."""
CROWD = 64
"""Where more than so many wait until they may come in, nobody waits for PROMPT_S."""
GOOD, NEW, BAD = range(3)
"""Connections: the last that came by it became whole; nothing has come by it; the last was given up."""
REMEMBERED = 4096
"""Connections. More than a server has."""


@dataclass(frozen=True, slots=True)
class _Place:
    caller: str
    connection: str


class Arrivals:
    """Bounds how long anything may take to come in, and how many do at a time. Used on one event loop.

    Each that comes in has a place, until it is whole or its memory is free. Where there is none, one waits in a line,
    and one of those that have a place is given up: of the caller who has the most of them, what has been coming for the
    longest, of bad connections first. So who is prompt is let in, whatever others hold back, and so is who is slow,
    beside one who floods. But nobody is given up before it has been heard for HEARD_S; nor, unless it is a crowd, for
    another one of the same caller, or for one of a caller with as many, before that one has waited for PROMPT_S.

    A place that is left is for the caller who has the fewest, and of its own for those by good connections. Those by
    bad ones wait: refused, they would come again at once.
    """

    def __init__(self, most: int, most_slow: int, most_waiting: int, timeout_s: float) -> None:
        """most_slow: of them, so many may take longer than PROMPT_S. most_waiting: in the line."""
        self._most, self._most_slow, self._most_waiting, self._timeout_s = most, most_slow, most_waiting, timeout_s
        self._places: dict[asyncio.Timeout, _Place] = {}
        """The oldest first."""
        self._heard: set[asyncio.Timeout] = set()
        self._slow: set[asyncio.Timeout] = set()
        self._given_up: set[asyncio.Timeout] = set()
        """Of those that have places."""
        self._line = Line()
        self._pressing = Line()
        """Those in the line that have waited for long enough."""
        self._timers: dict[asyncio.Timeout, Timer] = {}
        """Of those that wait, until they press; of those that have a place, until they are heard, and then slow."""
        self._whole: dict[str, bool] = {}
        """Whether the last that came by a connection became whole: the one that was heard of last at the end."""
        self.ended = False
        """Nothing comes in any more."""

    async def wait(
        self,
        come: Callable[[], Awaitable[T]],
        caller: str,
        connection: str,
        holder: "asyncio.Task[object] | None" = None,
    ) -> T:
        """What `come` waits for. Raises TimeoutError.

        connection: a name for what it comes by. holder: keeps what has come of one that does not become whole, until it
        is done
        """
        async with asyncio.timeout(self._timeout_s) as patience:
            try:
                if self.ended:
                    raise TimeoutError
                await self._place(patience, caller, connection)
                came = await come()
            except BaseException:
                self._remember(connection, False)
                if holder is not None and patience in self._places:
                    self._given_up.add(patience)
                    holder.add_done_callback(lambda _: self._leave(patience))
                else:
                    self._leave(patience)
                raise
            self._remember(connection, True)
            self._leave(patience)
            return came

    def end(self) -> None:
        """Gives up all that wait or have a place, and whoever comes from now on."""
        self.ended = True
        for one in (*self._places, *self._line):
            self._give_up(one)

    async def _place(self, patience: asyncio.Timeout, caller: str, connection: str) -> None:
        """Returns when it has one."""
        if len(self._places) < self._most:
            return self._take(patience, _Place(caller, connection))
        turn = asyncio.get_running_loop().create_future()
        waiting = Waiting(caller, connection, self._rank(connection), turn)
        self._line.join(patience, waiting)
        if len(self._line) > self._most_waiting:
            self._give_up(self._line.longest())
        if self._is_modest(caller) or len(self._line) > CROWD:
            self._insist(patience, waiting)
        else:
            self._timers[patience] = Timer(PROMPT_S, partial(self._insist, patience, waiting))
        await turn

    def _insist(self, patience: asyncio.Timeout, waiting: Waiting) -> None:
        self._pressing.join(patience, waiting)
        self._press()

    def _next(self) -> None:
        """Places that are free are for those in the line."""
        while len(self._line) and len(self._places) < self._most:
            first = self._line.first(self._counts())
            waiting = self._line.leave(first)
            self._forget(first)
            self._take(first, _Place(waiting.caller, waiting.connection))
            if not waiting.turn.done():  # else who waited has left, and is about to leave the place, too
                waiting.turn.set_result(None)
        self._press()

    def _take(self, patience: asyncio.Timeout, place: _Place) -> None:
        self._places[patience] = place
        self._timers[patience] = Timer(HEARD_S, partial(self._is_heard, patience))

    def _leave(self, patience: asyncio.Timeout) -> None:
        if patience in self._line:
            self._line.leave(patience)
        self._forget(patience)
        self._next()

    def _forget(self, patience: asyncio.Timeout) -> None:
        if patience in self._timers:
            self._timers.pop(patience).cancel()
        if patience in self._pressing:
            self._pressing.leave(patience)
        self._places.pop(patience, None)
        for some in (self._heard, self._slow, self._given_up):
            some.discard(patience)

    def _press(self) -> None:
        """Gives up one for each that presses, if it has been heard."""
        while len(self._given_up) < min(len(self._pressing), len(self._places)):
            best = self._pressing.of(self._pressing.first(self._counts()))
            one = self._greediest(self._places, best.caller)
            place = self._places[one]
            both_bad = place.caller == best.caller and BAD == self._rank(place.connection) == best.rank
            if one not in (self._slow if both_bad else self._heard):
                return
            self._give_up(one)

    def _is_heard(self, patience: asyncio.Timeout) -> None:
        self._heard.add(patience)
        self._timers[patience] = Timer(PROMPT_S - HEARD_S, partial(self._is_slow, patience))
        self._press()

    def _is_slow(self, patience: asyncio.Timeout) -> None:
        if len(self._slow - self._given_up) >= self._most_slow:
            self._give_up(self._greediest(self._slow, self._places[patience].caller))
        self._slow.add(patience)
        self._press()

    def _greediest(self, among: Collection[asyncio.Timeout], caller: str) -> asyncio.Timeout:
        """Who is to be given up of those that are not yet, for one more of this caller."""
        left = {one: place for one, place in self._places.items() if one in among and one not in self._given_up}
        counts = Counter([*(place.caller for place in left.values()), caller])
        [(greediest, _)] = counts.most_common(1)  # of equals, whose oldest is the oldest
        its = [one for one, place in left.items() if place.caller == greediest]
        return max(its, key=lambda one: self._rank(left[one].connection) == BAD)  # of equals the oldest

    def _give_up(self, one: asyncio.Timeout) -> None:
        if one in self._places:
            self._given_up.add(one)
        if not one.expired():  # else it is on its way out already, by its time
            one.reschedule(0)

    def _is_modest(self, caller: str) -> bool:
        """Somebody has more than this caller, one more included."""
        counts = self._counts()
        return counts[caller] + 1 < max(counts.values(), default=0)

    def _counts(self) -> Counter[str]:
        return Counter(place.caller for place in self._places.values())

    def _rank(self, connection: str) -> int:
        return {True: GOOD, None: NEW, False: BAD}[self._whole.get(connection)]

    def _remember(self, connection: str, whole: bool) -> None:
        self._whole.pop(connection, None)
        self._whole[connection] = whole
        if len(self._whole) > REMEMBERED:
            del self._whole[next(iter(self._whole))]
