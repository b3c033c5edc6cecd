"""How the clients connect: transport security, keepalive, message sizes."""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real

import grpc
from grpc import aio

DEFAULT_TARGET = "127.0.0.1:8500"

MAX_RECEIVE_BYTES = 64 * 1024 * 1024
"""gRPC's own limit of 4 MiB is too small for the vectors, or all the hypotheses, of many texts."""

HOST = re.compile(r"([^:/\[\]]+|\[[0-9A-Fa-f:.%]+\])(:(?P<port>\d+))?")
"""A name or an address, and perhaps a port."""

TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")

KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 15_000, 10_000
"""A connection with calls under way on which nothing came for so long is asked whether it still lives, and is given up
so long after that: together less than the deadline of a call that names none, which another server may then answer.
Servers let themselves be asked every 10 s."""

CONNECT_MS = 1_000
"""How long one of several servers may take to connect to: a call goes elsewhere then. gRPC gives each further attempt
more, up to the longest of its waits, and 20 s to the only server there is."""

MAX_TIMEOUT_S = 1e9
"""Thirty years. gRPC has deadlines as nanoseconds since 1970 in 64 bits: one after 2262 has passed at once."""

Option = tuple[str, str | int]
OPTIONS: list[Option] = [
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # gRPC 1.85 never starts the clock of the line above for a connection that is open, but waits this long: a minute.
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
    # gRPC waits up to two minutes before it connects again to a server that was down; a restart takes seconds.
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A connection of its own: gRPC would share one with all clients of the process, and its wait after a failure, too.
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Transport security. Everything is PEM; with nothing set, the server is checked against the roots gRPC trusts."""

    root_certificates: bytes | None = None
    """Authorities the server's certificate is checked against. None: those gRPC trusts by default."""
    certificate: bytes | None = None
    """The client's own certificate chain, for a server that asks for one."""
    key: bytes | None = None
    """The private key of `certificate`."""

    def __post_init__(self) -> None:
        for name in ("root_certificates", "certificate", "key"):
            value = getattr(self, name)
            if not isinstance(value, bytes | None):
                raise TypeError(f"{name} is {type(value).__name__}; it must be bytes, as they are in a file")
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a client certificate needs its key: set both certificate and key, or neither")
        if self.root_certificates is not None and b"-----BEGIN CERTIFICATE-----" not in self.root_certificates:
            raise ValueError("no certificate in it; root certificates are PEM: -----BEGIN CERTIFICATE-----")
        if self.certificate is not None and b"-----BEGIN CERTIFICATE-----" not in self.certificate:
            raise ValueError("no certificate in certificate; it is PEM: -----BEGIN CERTIFICATE-----")
        if self.key is not None and b"PRIVATE KEY-----" not in self.key:
            raise ValueError("no private key in key; it is PEM: -----BEGIN PRIVATE KEY-----")

    def credentials(self) -> grpc.ChannelCredentials:
        """These options as gRPC takes them."""
        return grpc.ssl_channel_credentials(self.root_certificates, self.key, self.certificate)


Token = str | Callable[[], str] | None
"""A bearer token, or what gives one for each call, such as `Path("token").read_text`. None: none is sent."""


def checked_token(token: Token) -> Token:
    """The same. Raises TypeError for what is none."""
    if not (token is None or isinstance(token, str) or callable(token)):
        raise TypeError(f"token is {type(token).__name__}; it must be a str, or a function that gives one, or None")
    return token


def token_metadata(token: Token) -> tuple[tuple[str, str], ...]:
    """What says who makes a call. Raises what `token` does, and TypeError or ValueError for what cannot be sent."""
    if token is None:
        return ()
    given = token if isinstance(token, str) else token()
    if not isinstance(given, str):
        raise TypeError(f"what gives the token gave {type(given).__name__}; it must be a str")
    sent = given.strip()
    if not TOKEN.fullmatch(sent):
        raise ValueError("the token is empty, or has a character that none has (RFC 6750)")
    return (("authorization", f"Bearer {sent}"),)


def check_seconds(name: str, value: float) -> None:
    """Raises ValueError for a time that no call has, and TypeError for what is no number."""
    if not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}; it must be a number of seconds")
    if not 0 < value <= MAX_TIMEOUT_S:
        raise ValueError(f"{name} is {value}; it must be above 0 and at most {MAX_TIMEOUT_S:.0f} seconds")


def check_target(target: str, tls: TlsOptions | None) -> None:
    """Raises ValueError for what gRPC would take for the name of a host, or for port 443."""
    if not target.strip():
        raise ValueError(f"a target is empty; give HOST:PORT, such as {DEFAULT_TARGET}")
    if not target.isprintable():
        raise ValueError(f"{target!r} has a character that no target has; give HOST:PORT, such as {DEFAULT_TARGET}")
    scheme, found, rest = target.partition("://")
    if found and scheme.lower() in ("http", "https", "grpc", "grpcs"):
        address = rest.partition("/")[0] or DEFAULT_TARGET
        security = ", and ask for TLS" if scheme.lower().endswith("s") and tls is None else ""
        raise ValueError(f"{target} is a URL; give HOST:PORT, such as {address}{security}")
    host = HOST.fullmatch(target)
    if host is None:  # one of gRPC's own schemes, such as dns:///, unix: or xds:
        return
    if host["port"] is None and tls is None:
        raise ValueError(f"{target} has no port; give HOST:PORT, such as {target}:{DEFAULT_TARGET.rpartition(':')[2]}")
    if host["port"] is not None and not 1 <= int(host["port"]) <= 65535:
        raise ValueError(f"port {host['port']} of {target} is not from 1 to 65535")


def listed_targets(target: str | Sequence[str]) -> list[str]:
    """One target, or several.

    Raises TypeError for what is none, and ValueError for none, or for one twice: it would get twice the calls.
    """
    targets = [target] if isinstance(target, str) or not isinstance(target, Iterable) else list(target)
    if not all(isinstance(each, str) for each in targets):
        raise TypeError(f"target is {target!r}; it must be HOST:PORT, such as {DEFAULT_TARGET!r}, or several of them")
    if not targets:
        raise ValueError(f"there is no target; give HOST:PORT, such as {DEFAULT_TARGET}")
    if twice := [each for each in targets if targets.count(each) > 1]:
        raise ValueError(f"{twice[0]} is there {targets.count(twice[0])} times; give every target once")
    return targets


def open_channels(target: str | Sequence[str], tls: TlsOptions | None) -> list[grpc.Channel]:
    """Channels for synchronous calls, one for each target. They connect at the first call.

    Raises TypeError or ValueError for a target that cannot be.
    """
    targets = _listed(target, tls)
    options = _options(len(targets))
    if tls is None:
        return [grpc.insecure_channel(each, options) for each in targets]
    return [grpc.secure_channel(each, tls.credentials(), options) for each in targets]


def open_aio_channels(target: str | Sequence[str], tls: TlsOptions | None) -> list[aio.Channel]:
    """Channels for calls of the running event loop. See `open_channels`. Raises RuntimeError where none runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:  # gRPC would take whatever loop the thread has, which may not be the one that calls
        raise RuntimeError("no event loop is running: make the AsyncClient in a coroutine, which uses it") from error
    targets = _listed(target, tls)
    options = _options(len(targets))
    if tls is None:
        return [aio.insecure_channel(each, options) for each in targets]
    return [aio.secure_channel(each, tls.credentials(), options) for each in targets]


def _listed(target: str | Sequence[str], tls: TlsOptions | None) -> list[str]:
    if not isinstance(tls, TlsOptions | None):
        raise TypeError(f"tls is {type(tls).__name__}; it must be TlsOptions(), or None for plaintext")
    targets = listed_targets(target)
    for each in targets:
        check_target(each, tls)
    return targets


def _options(servers: int) -> list[Option]:
    """Of a channel to one of so many servers."""
    return OPTIONS if servers == 1 else [*OPTIONS, ("grpc.min_reconnect_backoff_ms", CONNECT_MS)]
