"""server.traffic.address: what callers without an identity are told apart by."""

import pytest

from server.traffic.address import of_host, of_peer


@pytest.mark.parametrize(
    ("peer", "known_as"),
    [
        ("ipv4:10.0.0.7:41234", "ipv4:10.0.0.7"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:41234", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2::9]:41235", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:%5B::1%5D:41234", "ipv6:::1"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:41234", "ipv4:10.0.0.7"),
        ("ipv6:%5Bfe80::1%25eth0%5D:41234", "ipv6:fe80::/64"),
        ("unix:/run/dragoman.sock", "unix:/run/dragoman.sock"),
    ],
)
def test_a_caller_by_grpc(peer: str, known_as: str) -> None:
    assert of_peer(peer) == known_as


@pytest.mark.parametrize("host", ["10.0.0.7", "2001:db8:1:2:3:4:5:6", "::1", "::ffff:10.0.0.7"])
def test_it_is_the_same_by_http(host: str) -> None:
    peer = f"ipv6:%5B{host}%5D:1" if ":" in host else f"ipv4:{host}:1"
    assert of_host(host) == of_peer(peer)


def test_what_is_no_address_stays() -> None:
    assert of_host("testclient") == "testclient"
    assert of_host("") == ""
