"""Which calls are made again, and when: as gRPC's own retries (gRFC A6), but as long as the deadline allows.

gRPC gives up after five attempts. A server that is overloaded says when there is room again, and one that restarts
comes back: a call that has the time for it should not be lost.
"""

import random
import threading
from collections.abc import Iterable
from typing import cast

import grpc

FIRST_BACKOFF_S, MAX_BACKOFF_S, GROWTH = 0.1, 2.0, 2
JITTER = 0.2
"""Waits differ by up to so much of them, or callers that were refused together would come back together."""
PUSHBACK_KEY, REQUEST_ID_KEY = "grpc-retry-pushback-ms", "x-request-id"
ASKED_BACK = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED)
"""Over a quota, or one of too many requests that came in: where the server says when to come back."""
UNSENT = ("connections to all backends failing", "errors resolving ")
"""How gRPC begins to tell why it has sent a call nowhere: no connection, or no address."""
MAX_TOKENS, TOKEN_RATIO = 1000.0, 0.5
"""A6's throttle: a failure takes a token, a success brings a part of one, and with half of them nothing is repeated."""


class Retries:
    """Of one client. May be shared between threads."""

    def __init__(self, patient: bool = True) -> None:
        """patient: also where no server has asked for it, because none was reached or something on the way failed."""
        self._patient, self._tokens, self._lock = patient, MAX_TOKENS, threading.Lock()

    def succeeded(self) -> None:
        """A call was answered."""
        with self._lock:
            self._tokens = min(MAX_TOKENS, self._tokens + TOKEN_RATIO)

    def may_hedge(self) -> bool:
        """Whether calls go well enough that one may be made twice at a time. Takes a token."""
        with self._lock:
            return self._take()

    def delay_s(self, error: grpc.RpcError, attempt: int, left_s: float, elsewhere: bool = False) -> float | None:
        """How long to wait after this attempt (1: the first) failed. None: there is none after it.

        left_s: until the deadline
        elsewhere: another server can be asked at once, which has not failed this call
        """
        wait_ms = pushback_ms(error)
        asked_back = error.code() in ASKED_BACK and wait_ms is not None
        if not is_unavailable(error) and not asked_back:
            return None
        if wait_ms is None:
            delay_s = self._backoff_s(attempt, left_s, elsewhere, begun=not is_unbegun(error))
        elif wait_ms < 0:
            delay_s = None
        else:  # the server knows what it can take: the throttle is for those that do not
            delay_s = 0.0 if elsewhere else wait_ms / 1000 * random.uniform(1, 1 + JITTER)
        return delay_s if delay_s is not None and delay_s < left_s else None

    def _backoff_s(self, attempt: int, left_s: float, elsewhere: bool, begun: bool) -> float | None:
        """begun: a server may have had work with it. From one that has not, the throttle keeps nothing away."""
        with self._lock:
            if begun and not self._take():
                return None
        if elsewhere:
            return 0.0
        if not self._patient or left_s < FIRST_BACKOFF_S:
            return None
        # Nobody knows when a server will be back: the last attempts come the sooner the less time is left for them.
        longest: float = min(FIRST_BACKOFF_S * GROWTH ** min(attempt - 1, 10), MAX_BACKOFF_S, left_s / 2)
        return longest * random.uniform(1 - JITTER, 1 + JITTER)

    def _take(self) -> bool:
        self._tokens = max(0.0, self._tokens - 1)
        return self._tokens > MAX_TOKENS / 2


def is_unavailable(error: grpc.RpcError) -> bool:
    """Whether another server, or the same one later, may answer.

    gRPC ends calls with a bare CANCELLED that come while their server begins to stop, and does nothing for them. A
    proxy may add words to that. What a server itself says has the call's id, or when to come back.
    """
    code = error.code()
    if code is not grpc.StatusCode.CANCELLED:
        return code is grpc.StatusCode.UNAVAILABLE
    trailing = cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ())
    return not any(key in (REQUEST_ID_KEY, PUSHBACK_KEY) for key, _ in trailing)


def is_unbegun(error: grpc.RpcError) -> bool:
    """Whether no server has begun with a call that `is_unavailable`: it was sent nowhere, or to one that stops.

    In doubt, as with other words of another gRPC, one has.
    """
    unsent = not error.trailing_metadata() and (error.details() or "").startswith(UNSENT)
    return unsent or error.code() is grpc.StatusCode.CANCELLED


def pushback_ms(error: grpc.RpcError) -> int | None:
    """What the server asks for; -1, as A6 has it, for what is no number. None: nothing."""
    for key, value in cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ()):
        if key == PUSHBACK_KEY:
            try:
                return int(value)
            except ValueError:
                return -1
    return None
