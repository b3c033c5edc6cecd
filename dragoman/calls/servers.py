"""The servers of one client, and which of them a call goes to.

The better of two by chance (Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 2001): where texts
wait shorter, as servers say with every answer, and fewer calls of this client are under way. One that failed several
times in a row rests for a while (a circuit breaker), and one that asked to be left alone rests until then. What fails
while it rests began before, and makes no rest longer: a server that ends fails all calls that it has, and may be back
in a second. Where all rest, the one that is free again first is asked all the same: it may be able to.
"""

import random
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, TypeVar

import grpc

from dragoman.calls.retries import is_unavailable, is_unbegun, pushback_ms

M = TypeVar("M")

FAILURES = 3
"""So many in a row, and a server rests."""
FIRST_REST_S, MAX_REST_S = 1.0, 30.0
HALF_LIFE_S = 2.0
"""Of what is known of a queue: without it, nobody would ask again where texts once waited long."""
NEWEST = 0.3
"""Weight of the last answer in a server's mean."""
UNKNOWN_S = 0.005
"""A queue that is empty, or of which nothing is known: then the calls that are under way decide."""
TIMING_KEY = "server-timing"
QUEUE = re.compile(r"\bqueue;dur=([0-9]{1,9}(?:\.[0-9]{1,9})?)(?![0-9.])")
"""Milliseconds, as W3C Server Timing writes them."""

Metadata = Iterable[tuple[str, str | bytes]] | None


class Server(Generic[M]):
    """A server as its client knows it. To be changed by `Servers` alone."""

    def __init__(self, methods: M) -> None:
        """methods: what it can be asked."""
        self.methods = methods
        self.under_way, self.failures = 0, 0
        self.queue_s, self.said_s, self.rests_until_s = 0.0, 0.0, 0.0


class Servers(Generic[M]):
    """Of one client. May be shared between threads."""

    def __init__(self, methods: Sequence[M], clock: Callable[[], float] = time.monotonic) -> None:
        """methods: of each server. clock: seconds."""
        self._all, self._clock, self._lock = [Server(each) for each in methods], clock, threading.Lock()

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, tried: Collection[Server[M]] = ()) -> Server[M]:
        """The server that a call, or another attempt of one, goes to. Must be followed by one of the three below."""
        with self._lock:
            now_s = self._clock()
            others = [server for server in self._all if server not in tried] or self._all
            ready = [server for server in others if self._ready(server, now_s)]
            if ready:
                chosen = min(random.sample(ready, min(2, len(ready))), key=lambda server: self._load(server, now_s))
            else:
                chosen = min(others, key=lambda server: server.rests_until_s)
            chosen.under_way += 1
            return chosen

    def answered(self, server: Server[M], trailing: Metadata) -> None:
        """It did what it was asked."""
        with self._lock:
            server.under_way -= 1
            if server.failures >= FAILURES:  # it is well again, however long it was to rest
                server.rests_until_s = 0.0
            server.failures = 0
            found = QUEUE.search(_value(trailing, TIMING_KEY))
            if found:
                now_s = self._clock()
                known_s = self._queue_s(server, now_s)
                server.queue_s, server.said_s = known_s + NEWEST * (float(found[1]) / 1000 - known_s), now_s

    def failed(self, server: Server[M], error: grpc.RpcError) -> None:
        """It refused, or was not there."""
        wait_ms = pushback_ms(error)
        silent = is_unavailable(error) and wait_ms is None
        with self._lock:
            now_s = self._clock()
            server.under_way -= 1
            rest_s = max(0, wait_ms or 0) / 1000
            if not (silent or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED):
                server.failures = 0
            elif server.failures < FAILURES or server.rests_until_s <= now_s:
                # One that is not there, or goes, is looked for at no cost, and found again the sooner.
                server.failures = min(server.failures, FAILURES - 1) + 1 if is_unbegun(error) else server.failures + 1
                rest_s = self._rest_s(server)
            server.rests_until_s = max(server.rests_until_s, now_s + rest_s)

    def left(self, server: Server[M]) -> None:
        """Nobody waits for its answer any more."""
        with self._lock:
            server.under_way -= 1

    def has_ready(self, tried: Collection[Server[M]]) -> bool:
        """Whether there is one that has not been tried and may be asked at once."""
        with self._lock:
            now_s = self._clock()
            return any(server not in tried and self._ready(server, now_s) for server in self._all)

    @staticmethod
    def _rest_s(server: Server[M]) -> float:
        if server.failures < FAILURES:
            return 0.0
        longest: float = min(FIRST_REST_S * 2 ** min(server.failures - FAILURES, 10), MAX_REST_S)
        return longest * random.uniform(0.8, 1.2)

    @staticmethod
    def _ready(server: Server[M], now_s: float) -> bool:
        """Where a server has failed too often, one call at a time finds out whether it is well again."""
        return server.rests_until_s <= now_s and (server.failures < FAILURES or not server.under_way)

    def _load(self, server: Server[M], now_s: float) -> float:
        return (self._queue_s(server, now_s) + UNKNOWN_S) * (server.under_way + 1)

    @staticmethod
    def _queue_s(server: Server[M], now_s: float) -> float:
        aged: float = server.queue_s * 0.5 ** ((now_s - server.said_s) / HALF_LIFE_S)
        return aged


def _value(trailing: Metadata, wanted: str) -> str:
    return next((value for key, value in trailing or () if key == wanted and isinstance(value, str)), "")
