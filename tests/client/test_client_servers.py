"""The Python clients and several servers: balance, one that is down or full, a second attempt beside the first."""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import grpc
import pytest

from dragoman import AsyncClient, Client, InvalidArgument, Unavailable, Unreachable
from dragoman.calls.retries import is_unbegun
from dragoman.channel import KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS, OPTIONS, open_aio_channels, open_channels
from dragoman.client import DEFAULT_TIMEOUT_S
from tests.client.clients import Call, call_late, call_sync
from tests.client.fake_server import WAIT_S, FakeServer, overloaded, serving
from tests.client.test_client_connection import METHODS, free_target, free_targets
from tests.hostile.connections.proxy import proxy

HEDGE_S = 0.05


@pytest.fixture
def other() -> Iterator[FakeServer]:
    with serving(FakeServer()) as server:
        yield server


def test_calls_go_to_all_servers(server: FakeServer, other: FakeServer) -> None:
    server.rendezvous = other.rendezvous = 9
    texts = [f"text {number}" for number in range(16)]
    with Client([server.target, other.target]) as client, ThreadPoolExecutor(16) as pool:
        answers = pool.map(lambda text: client.translate(text).text, texts)
        while len(server.call_times) + len(other.call_times) < 16:
            threading.Event().wait(0.01)
        assert (len(server.call_times), len(other.call_times)) == (8, 8)
        for each in (server, other):
            call_sync(each.target, "translate", "the ninth of the rendezvous")
        assert list(answers) == [text.upper() for text in texts]


@pytest.mark.parametrize("wait_for_ready", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_server_that_is_down_costs_no_call(server: FakeServer, call: Call, method: str, wait_for_ready: bool) -> None:
    for _ in range(8):
        call([free_target(), server.target], method, "hello", wait_for_ready=wait_for_ready)
    assert len(server.call_times) == 8


@pytest.mark.parametrize("method", METHODS)
def test_a_server_that_does_not_say_a_word_costs_no_call(server: FakeServer, call: Call, method: str) -> None:
    """As behind a network that drops packets: whoever connects is neither refused nor answered."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        targets = [f"127.0.0.1:{silent.getsockname()[1]}", server.target]
        for _ in range(6):
            call(targets, method, "hello", timeout_s=15)
    assert len(server.call_times) == 6


def test_a_server_that_falls_silent_costs_no_call(
    server: FakeServer, other: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is stopped: its system still takes what is sent. It is asked whether it lives, here the sooner."""
    sooner = [(name, 200 if "keepalive" in name or "ping" in name else value) for name, value in OPTIONS]
    monkeypatch.setattr("dragoman.channel.OPTIONS", sooner)
    with proxy(int(server.target.rpartition(":")[2])) as network:
        targets = [f"127.0.0.1:{network.port}", other.target]
        with ThreadPoolExecutor() as pool, Client(targets) as client:
            while not server.call_times:
                client.translate("hello")
            network.part()
            answers = pool.map(lambda text: client.translate(text, timeout_s=WAIT_S).text, ["hello"] * 8)
            assert list(answers) == ["HELLO"] * 8
    assert KEEPALIVE_MS + KEEPALIVE_TIMEOUT_MS < 1000 * DEFAULT_TIMEOUT_S


@pytest.mark.parametrize("method", METHODS)
def test_a_server_that_is_full_leaves_the_call_to_another(
    server: FakeServer, other: FakeServer, call: Call, method: str
) -> None:
    """It asks to come back after the deadline."""
    server.failures = deque([overloaded(pushback_ms=10**9)] * 20)
    for _ in range(8):
        call([server.target, other.target], method, "hello", timeout_s=WAIT_S)
    assert len(other.call_times) == 8


@pytest.mark.parametrize("method", METHODS)
def test_where_all_are_full_the_call_waits_for_the_first(
    server: FakeServer, other: FakeServer, call: Call, method: str
) -> None:
    for _ in range(5):  # where the machine stops for a moment, one of them may be out of reach
        for each in (server, other):
            each.failures = deque([overloaded(pushback_ms=200)])
            each.call_times.clear()
        call([server.target, other.target], method, "hello", timeout_s=WAIT_S)
        if not (server.failures or other.failures):
            break
    first, second, third = sorted(server.call_times + other.call_times)
    assert third - second >= 0.19
    assert third - first >= 0.2


@pytest.mark.parametrize("method", METHODS)
def test_where_no_server_is_there_the_error_says_so(call: Call, method: str) -> None:
    with pytest.raises(Unreachable, match="Connection refused"):
        call(free_targets(2), method, "hello", timeout_s=0.5)


async def test_no_call_is_lost_while_all_servers_restart() -> None:
    """600 at a time, each of which finds neither of them there, used up all attempts of their client."""
    targets = free_targets(2)
    async with AsyncClient(targets) as client:
        texts = [f"text {number}" for number in range(600)]
        calls = asyncio.gather(*[client.translate(text, timeout_s=WAIT_S) for text in texts])
        with pytest.raises(Unreachable):
            await client.health()  # of the others, too, by then
        with ExitStack() as back:
            for target in targets:
                back.enter_context(serving(FakeServer(), port=int(target.rpartition(":")[2])))
            assert [answer.text for answer in await calls] == [text.upper() for text in texts]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "unix:/tmp/nobody", "nobody.invalid:80"])
async def test_grpc_tells_of_a_call_that_it_has_sent_nowhere_as_the_client_knows_it(address: str) -> None:
    with closing(open_channels(address, None)[0]) as channel, pytest.raises(grpc.RpcError) as failed:
        method: Any = channel.unary_unary("/a/method")
        method(b"", timeout=WAIT_S)
    assert is_unbegun(failed.value)
    async with open_aio_channels(address, None)[0] as aio_channel:
        method = aio_channel.unary_unary("/a/method")
        with pytest.raises(grpc.RpcError) as failed:
            await method(b"", timeout=WAIT_S)
    assert is_unbegun(failed.value)


def test_a_refusal_is_not_tried_elsewhere(server: FakeServer, other: FakeServer, call: Call) -> None:
    with pytest.raises(InvalidArgument):
        call([server.target, other.target], "translate", "too long")
    assert len(server.call_times) + len(other.call_times) == 1


@pytest.mark.parametrize(
    ("targets", "told"), [([], "there is no target"), (["a:1", "b:2", "a:1"], "a:1 is there 2 times")]
)
def test_targets_are_checked(targets: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Client(targets)


# A second attempt beside the first


def hanging_and_well(server: FakeServer, other: FakeServer) -> list[str]:
    server.rendezvous = 10**6
    return [server.target, other.target]


def test_a_call_that_hangs_is_made_again_elsewhere(server: FakeServer, other: FakeServer, call: Call) -> None:
    targets = hanging_and_well(server, other)
    while not server.call_times:
        assert call(targets, "translate", "hello", hedge_after_s=HEDGE_S, timeout_s=WAIT_S).text == "HELLO"
    assert server.left.wait(WAIT_S), "the attempt that lost is cancelled"


def test_without_being_told_so_no_call_is_made_twice(server: FakeServer, other: FakeServer, call: Call) -> None:
    other.rendezvous = 10**6
    targets, came = hanging_and_well(server, other), [server.call_times, other.call_times]
    call_late(call, lambda: any(came), targets, "translate", "hello")
    assert sum(map(len, came)) == 1


def test_a_call_is_made_at_most_twice_at_a_time(server: FakeServer, other: FakeServer, call: Call) -> None:
    other.rendezvous = 10**6
    targets, came = hanging_and_well(server, other), [server.call_times, other.call_times]

    def both() -> bool:
        if all(came):
            return True
        for times in came:  # the next deadline is later
            times.clear()
        return False

    call_late(call, both, targets, "translate", "hello", hedge_after_s=HEDGE_S)
    assert list(map(len, came)) == [1, 1]


def test_the_second_attempt_may_fail(server: FakeServer, other: FakeServer) -> None:
    """The first still gets its answer."""
    server.rendezvous = other.rendezvous = 2
    with Client([server.target, other.target], hedge_after_s=HEDGE_S) as client, ThreadPoolExecutor() as pool:
        first = pool.submit(client.translate, "hello", timeout_s=WAIT_S)
        while not (server.call_times or other.call_times):
            pass
        holding, failing = (server, other) if server.call_times else (other, server)
        failing.failures = deque([overloaded(pushback_ms=-1)] * 5)
        while not failing.call_times:
            threading.Event().wait(0.01)
        call_sync(holding.target, "translate", "the second of the rendezvous")
        assert first.result(WAIT_S).text == "HELLO"


def test_an_attempt_that_fails_beside_one_that_hangs_is_made_again(
    server: FakeServer, other: FakeServer, call: Call
) -> None:
    targets = hanging_and_well(server, other)
    for _ in range(6):  # by chance the one that hangs is the first
        other.failures = deque([overloaded(pushback_ms=10)])
        assert call(targets, "translate", "hello", hedge_after_s=HEDGE_S, timeout_s=WAIT_S).text == "HELLO"
    assert server.call_times


@pytest.mark.parametrize("hedge_after_s", [0, -1, float("nan"), float("inf"), 1e10])
def test_a_time_to_wait_that_is_none_is_refused(server: FakeServer, hedge_after_s: float) -> None:
    with pytest.raises(ValueError, match=r"hedge_after_s is .*; it must be above 0 and at most 1000000000 seconds"):
        Client(server.target, hedge_after_s=hedge_after_s)


def test_a_refusal_ends_both_attempts(server: FakeServer, call: Call) -> None:
    with pytest.raises(InvalidArgument):
        call(server.target, "translate", "too long", hedge_after_s=HEDGE_S)
    with pytest.raises(Unavailable):
        server.failures = deque([overloaded(pushback_ms=-1)])
        call(server.target, "translate", "hello", hedge_after_s=WAIT_S)
    assert len(server.call_times) == 2
