"""dragoman.calls.retries: which calls are made again, and when."""

from typing import Any

import grpc
import pytest

from dragoman.calls.retries import (
    ASKED_BACK,
    FIRST_BACKOFF_S,
    JITTER,
    MAX_BACKOFF_S,
    MAX_TOKENS,
    PUSHBACK_KEY,
    TOKEN_RATIO,
    Retries,
)


class Failed(grpc.RpcError):
    """A call that failed."""

    def __init__(self, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, pushback: str | None = None) -> None:
        self._code, self._pushback = code, pushback

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "it failed"

    def trailing_metadata(self) -> Any:
        return () if self._pushback is None else ((PUSHBACK_KEY, self._pushback),)


class Unsent(Failed):
    """One that no server was there for, as gRPC tells it."""

    def details(self) -> str:
        return "connections to all backends failing; last error: UNKNOWN: ipv4:127.0.0.1:1: Connection refused"


class Quoted(Unsent):
    """The same, told by a proxy of its own server."""

    def trailing_metadata(self) -> Any:
        return (("server", "envoy"),)


class ByProxy(Failed):
    """One of which a proxy has told."""

    def trailing_metadata(self) -> Any:
        return (("server", "envoy"), ("x-envoy-upstream-service-time", "3"))


def test_a_call_that_grpc_cancels_by_itself_is_made_again() -> None:
    """It does so where a server begins to stop."""
    delay = Retries().delay_s(Failed(grpc.StatusCode.CANCELLED), 1, 100)
    assert delay is not None and delay <= FIRST_BACKOFF_S * (1 + JITTER)
    assert Retries().delay_s(Failed(grpc.StatusCode.CANCELLED), 1, 100, elsewhere=True) == 0
    assert Retries().delay_s(ByProxy(grpc.StatusCode.CANCELLED), 1, 100) is not None


REPEATED = (grpc.StatusCode.UNAVAILABLE, *ASKED_BACK)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code not in REPEATED])
def test_what_is_not_unavailable_is_not_made_again(code: grpc.StatusCode) -> None:
    assert Retries().delay_s(Failed(code, "1"), 1, 100) is None


@pytest.mark.parametrize("code", ASKED_BACK)
def test_who_is_one_too_many_comes_back_when_the_server_says(code: grpc.StatusCode) -> None:
    delay = Retries().delay_s(Failed(code, "1000"), 1, 100)
    assert delay is not None and 1 <= delay <= 1 + JITTER
    assert Retries().delay_s(Failed(code), 1, 100) is None  # a message that is too large stays so


def test_waits_grow_to_their_limit() -> None:
    retries = Retries()
    for attempt, expected in ((1, FIRST_BACKOFF_S), (2, 0.2), (5, 1.6), (6, MAX_BACKOFF_S), (400, MAX_BACKOFF_S)):
        delays = {retries.delay_s(Failed(), attempt, 100) for _ in range(20)}
        assert len(delays) == 20, "callers would come back together"
        assert all(delay == pytest.approx(expected, rel=JITTER + 1e-9) for delay in delays)


def test_a_pushback_goes_before_the_backoff() -> None:
    delays = {Retries().delay_s(Failed(pushback="3000"), 1, 100) for _ in range(20)}
    assert all(delay is not None and 3 <= delay <= 3 * (1 + JITTER) for delay in delays)
    assert len(delays) == 20


@pytest.mark.parametrize("pushback", ["-1", "soon", ""])
def test_a_pushback_that_is_no_time_ends_the_attempts(pushback: str) -> None:
    assert Retries().delay_s(Failed(pushback=pushback), 1, 100) is None


def test_nothing_is_waited_for_that_comes_after_the_deadline() -> None:
    retries = Retries()
    assert retries.delay_s(Failed(pushback="2000"), 1, 1.9) is None
    assert retries.delay_s(Failed(), 1, FIRST_BACKOFF_S / 2) is None


def test_the_last_attempts_come_before_the_deadline() -> None:
    """A call whose next wait would have been longer was given up, with up to two of its seconds left."""
    for left_s in (1.9, 0.5, FIRST_BACKOFF_S):
        delay = Retries().delay_s(Failed(), 8, left_s)
        assert delay == pytest.approx(left_s / 2, rel=JITTER + 1e-9)


def test_the_impatient_only_wait_where_a_server_asks_for_it() -> None:
    retries = Retries(patient=False)
    assert retries.delay_s(Failed(), 1, 100) is None
    assert retries.delay_s(Failed(pushback="20"), 1, 100) is not None


def test_many_failures_end_all_attempts_until_there_are_answers() -> None:
    retries = Retries()
    failures = 0
    while retries.delay_s(Failed(), 1, 100) is not None:
        failures += 1
    assert failures == MAX_TOKENS / 2 - 1
    assert retries.delay_s(Failed(pushback="20"), 1, 100) is not None, "a server that asks for it can take it"
    for _ in range(int(2 / TOKEN_RATIO) + 1):
        retries.succeeded()
    assert retries.delay_s(Failed(), 1, 100) is not None


@pytest.mark.parametrize("error", [Unsent(), Failed(grpc.StatusCode.CANCELLED), ByProxy(grpc.StatusCode.CANCELLED)])
def test_calls_that_no_server_has_begun_with_are_not_throttled(error: Failed) -> None:
    """None is spared by it, and whoever has many under way would lose them where one restarts."""
    retries = Retries()
    assert None not in [retries.delay_s(error, 1, 100) for _ in range(int(MAX_TOKENS))]
    assert None in [retries.delay_s(Quoted(), 1, 100) for _ in range(int(MAX_TOKENS))]
