"""What callers without an identity are told apart by: where they call from."""

from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import unquote

SITE_BITS = 64
"""Of an IPv6 address, what says whose it is: whoever has one has all 2^64 with the same (RFC 4291, section 2.5.4)."""


def of_peer(peer: str) -> str:
    """Of a peer as gRPC names it, whose port is another one for each connection: ipv4:10.0.0.7:41234 -> ipv4:10.0.0.7.

    What is no address of the internet stays.
    """
    kind, _, place = peer.partition(":")
    if kind == "ipv4":  # as it is: most are
        return peer.rpartition(":")[0]
    return of_host(unquote(place).rpartition(":")[0].strip("[]")) if kind == "ipv6" else peer


def of_host(host: str) -> str:
    """Of an address: ipv4:10.0.0.7, and of IPv6 the network ipv6:2001:db8:0:1::/64. What is none stays."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return f"ipv4:{address}"
    if address.ipv4_mapped is not None:
        return f"ipv4:{address.ipv4_mapped}"
    if address.is_loopback:
        return f"ipv6:{address}"
    return f"ipv6:{ip_network((address, SITE_BITS), strict=False)}"
