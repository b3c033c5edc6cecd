"""dragoman.calls.servers: which of several servers a call goes to."""

import random
from typing import Any

import grpc
import pytest

from dragoman.calls.servers import FAILURES, FIRST_REST_S, HALF_LIFE_S, MAX_REST_S, Server, Servers
from tests.client.calls.test_retries import Failed, Unsent


class Clock:
    """Time that stands still."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def _the_same_chances() -> None:
    random.seed(7)


def answer(servers: Servers[str], server: Server[str], queue_ms: float) -> None:
    servers.answered(server, (("server-timing", f"tokenize;dur=0.041, queue;dur={queue_ms:.3f}, total;dur=900.000"),))


def chosen(servers: Servers[str], calls: int, *tried: Server[str]) -> dict[str, int]:
    """How many of so many calls, one after the other, each server gets."""
    counts: dict[str, int] = {}
    for _ in range(calls):
        server = servers.begin(tried)
        servers.left(server)
        counts[server.methods] = counts.get(server.methods, 0) + 1
    return counts


def fail(servers: Servers[str], name: str, times: int, error: Any = None) -> None:
    """Lets the calls that go to this server fail so often."""
    while times:
        server = servers.begin()
        if server.methods == name:
            servers.failed(server, error or Failed())
            times -= 1
        else:
            servers.left(server)


def test_calls_under_way_are_spread() -> None:
    servers = Servers(["a", "b", "c"])
    started = [servers.begin().methods for _ in range(300)]
    assert {name: started.count(name) for name in "abc"} == {name: pytest.approx(100, abs=2) for name in "abc"}


def test_where_texts_wait_longer_fewer_calls_go() -> None:
    servers = Servers(["fast", "slow"], Clock())
    for _ in range(20):
        server = servers.begin()
        answer(servers, server, 400 if server.methods == "slow" else 0.1)
    under_way = [servers.begin().methods for _ in range(40)]
    assert 0 < under_way.count("slow") <= 2


def test_what_is_known_of_a_queue_ages() -> None:
    """Else a server whose queue was long once would never be asked again."""
    clock = Clock()
    servers = Servers(["a", "b"], clock)
    answer(servers, waited := servers.begin(), 5000)
    assert chosen(servers, 50).get(waited.methods, 0) == 0
    clock.now_s += 20 * HALF_LIFE_S
    servers.begin()  # one call under way on either weighs more now
    servers.begin()
    assert waited.under_way == 1


@pytest.mark.parametrize(
    "timing", ["", "total;dur=3", "queue;dur=soon", "queue;dur=" + "9" * 400, b"queue;dur=1", "queue;dur=-5"]
)
def test_a_timing_that_is_none_is_ignored(timing: str | bytes) -> None:
    servers = Servers(["a", "b"], Clock())
    server = servers.begin()
    servers.answered(server, (("server-timing", timing),))
    assert server.queue_s == 0


def test_who_has_failed_a_call_is_not_asked_again_while_there_are_others() -> None:
    servers = Servers(["a", "b"])
    first = servers.begin()
    other = "b" if first.methods == "a" else "a"
    assert chosen(servers, 20, first) == {other: 20}
    second = servers.begin([first])
    assert set(chosen(servers, 50, first, second)) == {"a", "b"}, "then all may be asked again"


def test_a_server_that_fails_again_and_again_rests_longer_each_time() -> None:
    clock = Clock()
    servers = Servers(["well", "ill"], clock)
    fail(servers, "ill", FAILURES - 1)
    assert "ill" in chosen(servers, 50)
    fail(servers, "ill", 1)
    for rest_s in (FIRST_REST_S, 2 * FIRST_REST_S, 4 * FIRST_REST_S):
        assert chosen(servers, 50) == {"well": 50}
        clock.now_s += 0.79 * rest_s
        assert chosen(servers, 50) == {"well": 50}
        clock.now_s += 0.42 * rest_s
        assert "ill" in chosen(servers, 50)
        fail(servers, "ill", 1)
    for _ in range(20):
        clock.now_s += 1.2 * MAX_REST_S
        fail(servers, "ill", 1)
    clock.now_s += 1.2 * MAX_REST_S
    assert "ill" in chosen(servers, 50), "no rest is longer than that"


def test_a_server_that_is_not_there_is_looked_for_every_second() -> None:
    clock = Clock()
    servers = Servers(["well", "away"], clock)
    fail(servers, "away", FAILURES, Unsent())
    for _ in range(6):
        assert chosen(servers, 50) == {"well": 50}
        clock.now_s += 1.21 * FIRST_REST_S
        fail(servers, "away", 1, Unsent())


def test_calls_that_fail_together_make_no_rest_longer() -> None:
    """A server that is killed fails all that it has. Forty of them kept its clients away for half a minute."""
    clock = Clock()
    servers = Servers(["ill", "well"], clock)
    for server in [servers.begin() for _ in range(80)]:
        if server.methods == "ill":
            servers.failed(server, Failed())
        else:
            servers.left(server)
    assert chosen(servers, 50) == {"well": 50}
    clock.now_s += 1.21 * FIRST_REST_S
    assert "ill" in chosen(servers, 50)


def test_who_answers_rests_no_longer() -> None:
    """Where all were down, the first that was back would get all calls until the rest of the others was over."""
    servers = Servers(["a", "b"], Clock())
    for _ in range(2 * FAILURES):
        server = servers.begin()
        servers.failed(server, Failed())
        servers.failed(servers.begin([server]), Failed())
    for _ in range(2):
        first = servers.begin()
        second = servers.begin([first])
        servers.answered(first, ())
        servers.answered(second, ())
    assert set(chosen(servers, 50)) == {"a", "b"}


def test_one_call_at_a_time_finds_out_whether_it_is_well_again() -> None:
    clock = Clock()
    servers = Servers(["well", "ill"], clock)
    fail(servers, "ill", FAILURES)
    clock.now_s += 1.2 * FIRST_REST_S
    started = [servers.begin() for _ in range(30)]
    [trial] = [server for server in started if server.methods == "ill"]
    servers.answered(trial, ())
    assert "ill" in {servers.begin().methods for _ in range(30)}


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL])
def test_who_refuses_a_request_is_not_ill(code: grpc.StatusCode) -> None:
    servers = Servers(["a", "b"], Clock())
    fail(servers, "a", 10, Failed(code))
    assert set(chosen(servers, 50)) == {"a", "b"}


def test_who_asks_to_be_left_alone_is_and_is_not_ill() -> None:
    clock = Clock()
    servers = Servers(["a", "b"], clock)
    fail(servers, "a", 1, Failed(pushback="3000"))
    clock.now_s += 2.9
    assert chosen(servers, 50) == {"b": 50}
    assert servers.has_ready([])
    other = servers.begin()
    assert not servers.has_ready([other])
    servers.left(other)
    clock.now_s += 0.2
    assert set(chosen(servers, 50)) == {"a", "b"}


def test_where_all_rest_the_one_that_is_free_first_is_asked() -> None:
    servers = Servers(["a", "b"], Clock())
    fail(servers, "a", 1, Failed(pushback="3000"))
    fail(servers, "b", 1, Failed(pushback="2000"))
    assert not servers.has_ready([])
    assert chosen(servers, 5) == {"b": 5}
