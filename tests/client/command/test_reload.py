"""`dragoman reload`: of several servers each in turn, until one refuses."""

from collections.abc import Iterator

import grpc
import pytest

from tests.client.command.command_line import Dragoman, Result
from tests.client.fake_server import MODEL, Failure, FakeServer, serving

REFUSED = Failure(grpc.StatusCode.FAILED_PRECONDITION, "it is damaged")
LINE = f"{MODEL.name} is served of package {MODEL.package_sha256[:12]} already\n"


@pytest.fixture
def other() -> Iterator[FakeServer]:
    with serving(FakeServer()) as server:
        yield server


@pytest.fixture
def targets(server: FakeServer, other: FakeServer) -> list[str]:
    """The command's flags for both, in this order."""
    return ["--target", server.target, "--target", other.target]


def test_one_server_is_not_named_in_the_line(command: Dragoman) -> None:
    assert command("reload") == Result(0, LINE, "")


def test_each_server_is_reloaded_and_tells_what_came_of_it(
    command: Dragoman, server: FakeServer, other: FakeServer, targets: list[str]
) -> None:
    told = command("reload", "--model", MODEL.name, *targets)
    assert told == Result(0, f"{server.target}: {LINE}{other.target}: {LINE}", "")
    assert [request.name for request in server.requests + other.requests] == [MODEL.name] * 2
    assert server.call_times[0] < other.call_times[0]
    written = command("reload", "--json", *targets).json
    assert [line["target"] for line in written] == [server.target, other.target]
    assert {line["model"]["name"] for line in written} == {MODEL.name}


def test_the_first_refusal_ends_it_and_says_whose_it_is_and_who_was_spared(
    command: Dragoman, server: FakeServer, other: FakeServer, targets: list[str]
) -> None:
    server.failures.append(REFUSED)
    spared = f"; not reloaded: {other.target}\n"
    told = command("reload", *targets)
    assert (told.code, told.out) == (1, "")
    assert told.err == f"dragoman: {server.target}: it is damaged (FAILED_PRECONDITION){spared}"
    assert not other.requests


def test_those_before_the_one_that_refuses_have_told_what_came_of_them(
    command: Dragoman, server: FakeServer, other: FakeServer, targets: list[str]
) -> None:
    other.failures.append(REFUSED)
    refusal = f"dragoman: {other.target}: it is damaged (FAILED_PRECONDITION)\n"
    assert command("reload", *targets) == Result(1, f"{server.target}: {LINE}", refusal)


def test_a_server_that_cannot_be_reached_ends_it(command: Dragoman, server: FakeServer) -> None:
    told = command("reload", "--target", "127.0.0.1:1", "--target", server.target)
    assert told.code == 1
    assert told.err.startswith("dragoman: 127.0.0.1:1: no server at 127.0.0.1:1 (")
    assert told.err.endswith(f"; not reloaded: {server.target}\n")
    assert not server.requests
