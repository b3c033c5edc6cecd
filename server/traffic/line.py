"""Those who wait until they may come in."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """One of them."""

    caller: str
    connection: str
    rank: int
    """How good the connection is: the less, the better."""
    turn: asyncio.Future[None]
    """Is done when it is theirs."""


class Line:
    """In order of arrival, those of each caller by connections that are as good apart. Used on one event loop."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], dict[asyncio.Timeout, None]] = {}
        self._waiting: dict[asyncio.Timeout, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[asyncio.Timeout]:
        return iter(self._waiting)

    def __contains__(self, patience: asyncio.Timeout) -> bool:
        return patience in self._waiting

    def of(self, patience: asyncio.Timeout) -> Waiting:
        """Who waits so."""
        return self._waiting[patience]

    def join(self, patience: asyncio.Timeout, waiting: Waiting) -> None:
        """At the end."""
        self._waiting[patience] = waiting
        self._parts.setdefault((waiting.caller, waiting.rank), {})[patience] = None

    def leave(self, patience: asyncio.Timeout) -> Waiting:
        """Takes one out that is in it."""
        waiting = self._waiting.pop(patience)
        key = waiting.caller, waiting.rank
        del self._parts[key][patience]
        if not self._parts[key]:
            del self._parts[key]
        return waiting

    def first(self, counts: Mapping[str, int]) -> asyncio.Timeout:
        """Of the caller who has the fewest places, by a good connection sooner, and then who came first."""
        caller, rank = min(self._parts, key=lambda key: (counts.get(key[0], 0), key[1]))
        return next(iter(self._parts[caller, rank]))

    def longest(self) -> asyncio.Timeout:
        """The first of the most that wait alike."""
        longest = max(self._parts, key=lambda key: len(self._parts[key]))
        return next(iter(self._parts[longest]))
