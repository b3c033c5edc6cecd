"""Ports to listen on, and what is wrong with one that cannot be had."""

import socket

from server.config import ConfigError


def address(host: str, port: int) -> str:
    """As gRPC and URLs write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_free(host: str, port: int, setting: str, reuse: bool = False) -> None:
    """Raises ConfigError with the reason, which gRPC does not tell; and of two addresses, it would do with one.

    reuse: another server that shares the port may be there.
    """
    flag = f"--{setting.replace('_', '-')}"
    try:
        for family, kind, protocol, _, where in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if reuse:  # does not listen: it would be given connections that are meant for the other server
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                probe.bind(where)
                if not reuse:
                    probe.listen(1)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {address(host, port)}: {error.strerror}; "
            f"choose another port with {flag} (0 picks a free one), or another address with --host"
        ) from error


def bind(host: str, port: int, setting: str) -> socket.socket:
    """A socket that is ours and does not listen yet: whoever connects before it does is refused. Raises ConfigError."""
    check_free(host, port, setting)
    [found, *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = found
    # Where TCP is not said by name, asyncio leaves Nagle's algorithm on, which costs 40 ms for every call.
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family is socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not socket.has_dualstack_ipv6())
    bound.bind(where)
    return bound
