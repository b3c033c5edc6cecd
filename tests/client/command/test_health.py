"""`dragoman health`: of several servers each, whoever of them is there."""

import pytest

from tests.client.command.command_line import Dragoman, Result
from tests.client.fake_server import FakeServer, serving
from tests.client.test_client_connection import free_target


@pytest.mark.parametrize("first", [True, False])
def test_each_server_is_asked(command: Dragoman, server: FakeServer, first: bool) -> None:
    absent = free_target()
    targets = [server.target, absent] if first else [absent, server.target]
    told = command("health", *(part for target in targets for part in ("--target", target)))
    assert (told.code, told.out) == (1, f"{server.target}: SERVING\n")
    assert told.err.startswith(f"dragoman: {absent}: no server at {absent} (")


def test_all_are_well(command: Dragoman, server: FakeServer) -> None:
    with serving(FakeServer()) as other:
        both = ["--target", server.target, "--target", other.target]
        assert command("health", *both) == Result(0, f"{server.target}: SERVING\n{other.target}: SERVING\n", "")
        written = command("health", "--json", *both).json
    assert [line["target"] for line in written] == [server.target, other.target]
