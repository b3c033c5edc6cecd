"""The Python clients and the network: deadlines, cancellation, retries and TLS."""

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from bench.process import free_port
from dragoman import AsyncClient, Client, Health, TextDelta, TlsOptions
from dragoman.channel import MAX_TIMEOUT_S
from dragoman.errors import Cancelled, DeadlineExceeded, InvalidArgument, Unavailable, Unreachable
from dragoman.wire.messages import MAX_CONTENT_BYTES, MAX_CONTENTS
from tests.client.clients import Call, call_late, call_sync
from tests.client.fake_server import WAIT_S, Failure, FakeServer, overloaded, serving
from tests.server_process import eventually


def free_target() -> str:
    return free_targets(1)[0]


def free_targets(count: int) -> list[str]:
    """Different ones, which no connection is given meanwhile."""
    ports = set[int]()
    while len(ports) < count:
        ports.add(free_port())
    return [f"127.0.0.1:{port}" for port in ports]


METHODS = ["translate", "stream_translate", "encode"]


def test_a_server_that_is_not_there_is_unreachable(call: Call) -> None:
    with pytest.raises(Unreachable, match="Connection refused"):
        call(free_target(), "health")


@pytest.mark.parametrize("method", METHODS)
def test_a_call_that_waited_for_a_server_says_why_there_is_none(call: Call, method: str) -> None:
    with pytest.raises(Unreachable, match="Connection refused"):
        call(free_target(), method, "hello", timeout_s=0.5)


def test_who_does_not_want_to_wait_is_told_at_once(call: Call) -> None:
    target = free_target()
    with pytest.raises(Unreachable, match="Connection refused"), Client(target, wait_for_ready=False) as client:
        client.translate("hello", timeout_s=10**6)


@pytest.mark.parametrize("method", METHODS)
def test_a_call_waits_for_a_server_that_comes(call: Call, method: str) -> None:
    target = free_target()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(call, target, method, "hello", timeout_s=WAIT_S)
        with pytest.raises(Unreachable):
            call_sync(target, "health")  # it is not there yet
        with serving(FakeServer(), port=int(target.rpartition(":")[2])) as server:
            waiting.result()
            assert len(server.call_times) == 1


def test_a_new_client_does_not_wait_for_anothers_next_attempt() -> None:
    target = free_target()
    with Client(target, wait_for_ready=False) as earlier:
        with pytest.raises(Unreachable):
            earlier.translate("hello")
        with serving(FakeServer(), port=int(target.rpartition(":")[2])), Client(target, wait_for_ready=False) as new:
            assert new.translate("hello").text == "HELLO"


# Deadlines, cancellation, retries


@pytest.mark.parametrize("method", METHODS)
def test_a_passed_deadline_raises_and_reaches_the_server(server: FakeServer, call: Call, method: str) -> None:
    call_late(call, server.held.is_set, server.target, method, "hold")
    assert server.left.wait(WAIT_S)


@pytest.mark.parametrize("method", ["translate", "stream_translate"])
def test_the_longest_deadline_is_one(server: FakeServer, call: Call, method: str) -> None:
    assert call(server.target, method, "hello", timeout_s=MAX_TIMEOUT_S, hedge_after_s=MAX_TIMEOUT_S)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 1e10])
@pytest.mark.parametrize("method", ["translate", "stream_translate", "encode", "model", "health"])
def test_a_deadline_that_is_none_is_refused(server: FakeServer, method: str, timeout_s: float) -> None:
    with pytest.raises(ValueError, match=r"timeout_s is .*; it must be above 0 and at most 1000000000 seconds"):
        call_sync(server.target, method, "x", timeout_s=timeout_s)


def test_a_client_of_no_event_loop_is_told_where_to_be_made(server: FakeServer) -> None:
    """Made before asyncio.run, it had another loop, and failed at its first call."""
    with pytest.raises(RuntimeError, match="no event loop is running: make the AsyncClient in a coroutine"):
        AsyncClient(server.target)


def test_a_client_of_another_event_loop_is_told_to_be_made_in_this_one(server: FakeServer) -> None:
    """Its calls ended with "Event loop is closed", or never, where the other loop ran on."""

    async def made() -> AsyncClient:
        client = AsyncClient(server.target)
        assert (await client.translate("hello")).text
        return client

    async def used(client: AsyncClient) -> None:
        for ask in (
            client.translate("hello"),
            client.encode("hello"),
            client.model(),
            client.health(),
            client.reload(),
        ):
            with pytest.raises(RuntimeError, match="this AsyncClient was made in another event loop: make one in each"):
                await ask
        with pytest.raises(RuntimeError, match="made in another event loop"):
            await anext(client.stream_translate("hello"))

    asyncio.run(used(asyncio.run(made())))


async def test_cancelling_a_call_cancels_it_on_the_server(server: FakeServer) -> None:
    async with AsyncClient(server.target) as client:
        task = asyncio.create_task(client.translate(["a"] * MAX_CONTENTS + ["hold"]))
        assert await asyncio.to_thread(server.held.wait, WAIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.left.wait, WAIT_S)


def test_closing_a_client_cancels_its_calls(server: FakeServer) -> None:
    with ThreadPoolExecutor() as pool, Client(server.target) as client:
        waiting = pool.submit(client.translate, "hold")
        assert server.held.wait(WAIT_S)
        client.close()
        with pytest.raises(Cancelled, match="the client was closed"):
            waiting.result()


def test_closing_a_client_cancels_its_streams(server: FakeServer) -> None:
    with Client(server.target) as client:
        events = client.stream_translate("hold")
        assert next(events) == TextDelta("HOLD")
        client.close()
        with pytest.raises(Cancelled, match="the client was closed"):
            list(events)


@pytest.mark.parametrize("hedge_after_s", [None, 10.0])
async def test_closing_a_client_of_asyncio_cancels_its_calls_and_no_task(
    server: FakeServer, hedge_after_s: float | None
) -> None:
    async with AsyncClient(server.target, hedge_after_s=hedge_after_s) as client:
        waiting = asyncio.create_task(client.translate("hold"))
        assert await asyncio.to_thread(server.held.wait, WAIT_S)
        await client.close()
        with pytest.raises(Cancelled, match="the client was closed"):
            await waiting


async def test_closing_a_client_of_asyncio_cancels_its_streams_and_no_task(server: FakeServer) -> None:
    async def listen(client: AsyncClient) -> None:
        async for _ in client.stream_translate("hold"):
            pass

    async with AsyncClient(server.target) as client:
        waiting = asyncio.create_task(listen(client))
        assert await asyncio.to_thread(server.held.wait, WAIT_S)
        await client.close()
        with pytest.raises(Cancelled, match="the client was closed"):
            await waiting


def test_closing_a_client_ends_what_waits_for_its_next_attempt_and_for_its_turn() -> None:
    """Some requests of a list are refused until long after, and others have not been sent yet."""
    refused = Failure(grpc.StatusCode.UNAVAILABLE, pushback_ms=25_000)
    with (
        serving(FakeServer(failures=deque([refused] * 99))) as server,
        ThreadPoolExecutor() as pool,
        Client(server.target) as client,
    ):
        waiting = pool.submit(client.encode, [str(number) for number in range(10 * MAX_CONTENTS)])
        eventually(lambda: bool(server.requests))
        client.close()
        with pytest.raises(Cancelled, match="the client was closed"):
            waiting.result(WAIT_S / 3)


async def test_closing_a_client_of_asyncio_ends_what_waits_for_its_next_attempt() -> None:
    refused = Failure(grpc.StatusCode.UNAVAILABLE, pushback_ms=25_000)
    with serving(FakeServer(failures=deque([refused] * 99))) as server:
        async with AsyncClient(server.target) as client:
            waiting = asyncio.create_task(client.translate("a"))
            await asyncio.to_thread(eventually, lambda: bool(server.requests))
            await client.close()
            with pytest.raises(Cancelled, match="the client was closed"):
                await asyncio.wait_for(waiting, WAIT_S / 3)


def test_a_token_that_cannot_be_had_leaves_its_server_as_it_was(server: FakeServer) -> None:
    tokens = iter(["", "", "", "abc"])
    with Client(server.target, token=lambda: next(tokens)) as client:
        for _ in range(3):
            with pytest.raises(ValueError, match="the token is empty"):
                client.translate("hello")
        assert client.translate("hello").text == "HELLO"
        assert [one.under_way for one in client._calls.servers._all] == [0]


async def test_a_closed_client_says_so(server: FakeServer) -> None:
    client = Client(server.target)
    client.close()
    for asked in (lambda: client.translate("hello"), client.health, client.reload, client.models):
        with pytest.raises(ValueError, match="this client is closed"):
            asked()
    of_asyncio = AsyncClient(server.target)
    await of_asyncio.close()
    with pytest.raises(ValueError, match="this client is closed"):
        await of_asyncio.translate("hello")


@pytest.mark.parametrize("method", METHODS)
def test_an_overloaded_server_is_tried_again_when_it_says(server: FakeServer, call: Call, method: str) -> None:
    """Without pushback the first wait would be at most 120 ms: gRPC's backoff of 100 ms and its jitter."""
    server.failures = deque([overloaded(pushback_ms=300), overloaded(pushback_ms=10)])
    call(server.target, method, "hello")
    first, second, third = server.call_times
    assert second - first >= 0.3
    assert third > second


def test_a_negative_pushback_stops_retries(server: FakeServer, call: Call) -> None:
    server.failures = deque([overloaded(pushback_ms=-1)])
    with pytest.raises(Unavailable, match="the queue is full") as caught:
        call(server.target, "translate", "hello")
    assert type(caught.value) is Unavailable
    assert caught.value.retry_delay_s == 0.01
    assert len(server.call_times) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_call_is_made_again_as_long_as_its_deadline_allows(server: FakeServer, call: Call, method: str) -> None:
    server.failures = deque([overloaded(pushback_ms=1)] * 10)
    call(server.target, method, "hello")
    assert len(server.call_times) == 11


@pytest.mark.parametrize("method", METHODS)
def test_what_a_server_wants_later_than_the_deadline_is_not_waited_for(
    server: FakeServer, call: Call, method: str
) -> None:
    server.failures = deque([overloaded(pushback_ms=10**9)])
    with pytest.raises(Unavailable) as caught:
        call(server.target, method, "hello", timeout_s=10**4)
    assert caught.value.reason == "OVERLOADED"
    assert len(server.call_times) == 1


def test_the_deadline_is_one_for_all_attempts(server: FakeServer, call: Call) -> None:
    server.failures = deque([overloaded(pushback_ms=200)])
    with pytest.raises(DeadlineExceeded):
        call(server.target, "translate", "hold", timeout_s=3.0)
    first, second = server.call_times
    assert second - first >= 0.2
    assert server.left.wait(WAIT_S)


def test_a_refusal_is_not_tried_again(server: FakeServer, call: Call) -> None:
    with pytest.raises(InvalidArgument):
        call(server.target, "translate", "too long")
    assert len(server.call_times) == 1


def test_the_largest_request_can_still_be_retried(server: FakeServer, call: Call) -> None:
    """gRPC does not retry what it did not keep: it keeps 256 KiB of a request."""
    server.failures = deque([overloaded(pushback_ms=1)])
    texts = ["x" * (MAX_CONTENT_BYTES // MAX_CONTENTS)] * MAX_CONTENTS
    assert len(call(server.target, "translate", texts)) == MAX_CONTENTS
    assert len(server.call_times) == 2


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_credentials(authority: trustme.CA, mutual: bool = False) -> grpc.ServerCredentials:
    certificate = authority.issue_cert("127.0.0.1")
    chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
    pairs = [(certificate.private_key_pem.bytes(), chain)]
    return grpc.ssl_server_credentials(pairs, authority.cert_pem.bytes() if mutual else None, mutual)


def test_tls_with_an_authority_of_ones_own(authority: trustme.CA, call: Call) -> None:
    tls = TlsOptions(root_certificates=authority.cert_pem.bytes())
    with serving(FakeServer(), server_credentials(authority)) as server:
        assert call(server.target, "translate", "hello", tls=tls).text == "HELLO"


def test_tls_with_a_client_certificate(authority: trustme.CA, call: Call) -> None:
    own = authority.issue_cert("client.example")
    chain = b"".join(pem.bytes() for pem in own.cert_chain_pems)
    trusting = TlsOptions(root_certificates=authority.cert_pem.bytes())
    known = TlsOptions(authority.cert_pem.bytes(), chain, own.private_key_pem.bytes())
    with serving(FakeServer(), server_credentials(authority, mutual=True)) as server:
        assert call(server.target, "health", tls=known) is Health.SERVING
        with pytest.raises(Unreachable):
            call(server.target, "health", tls=trusting)


def test_neither_an_unknown_authority_nor_plaintext_reaches_a_tls_server(authority: trustme.CA) -> None:
    stranger = TlsOptions(root_certificates=trustme.CA().cert_pem.bytes())
    with serving(FakeServer(), server_credentials(authority)) as server:
        for tls in (stranger, TlsOptions(), None):
            with pytest.raises(Unreachable):
                call_sync(server.target, "health", tls=tls)


def test_tls_options_are_checked() -> None:
    with pytest.raises(ValueError, match="set both certificate and key"):
        TlsOptions(certificate=b"-----BEGIN CERTIFICATE-----")
    with pytest.raises(ValueError, match="PEM"):
        TlsOptions(root_certificates=b"not a certificate")
    with pytest.raises(ValueError, match="no certificate in certificate; it is PEM"):
        TlsOptions(certificate=b"der", key=b"-----BEGIN PRIVATE KEY-----")
    with pytest.raises(ValueError, match="no private key in key; it is PEM"):
        TlsOptions(certificate=b"-----BEGIN CERTIFICATE-----", key=b"der")
    with pytest.raises(TypeError, match="root_certificates is str; it must be bytes, as they are in a file"):
        TlsOptions("ca.pem")  # type: ignore[arg-type]


async def test_a_client_that_is_told_true_asks_for_the_options() -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(TypeError, match=r"tls is bool; it must be TlsOptions\(\), or None for plaintext"):
            kind("127.0.0.1:1", tls=True)  # type: ignore[arg-type]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a number": ({"target": 8500}, r"target is 8500; it must be HOST:PORT, such as '127\.0\.0\.1:8500', or several"),
    "host and port": ({"target": ("localhost", 8500)}, r"target is \('localhost', 8500\); it must be HOST:PORT"),
    "bytes": ({"target": b"localhost:8500"}, "target is b'localhost:8500'; it must be HOST:PORT"),
    "nothing": ({"target": None}, "target is None; it must be HOST:PORT"),
    "a time that is no number": ({"hedge_after_s": "1"}, "hedge_after_s is '1'; it must be a number of seconds"),
    "a token in bytes": ({"token": b"x"}, "token is bytes; it must be a str, or a function that gives one, or None"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_a_client_cannot_be_made_of_is_told(name: str) -> None:
    given, told = WRONG[name]
    for kind in (Client, AsyncClient):
        with pytest.raises(TypeError, match=told):
            kind(**given)


def test_a_token_that_comes_in_bytes_is_told() -> None:
    given: Any = Path(__file__).read_bytes
    told = pytest.raises(TypeError, match="what gives the token gave bytes; it must be a str")
    with Client("127.0.0.1:1", token=given) as client, told:
        client.models()
