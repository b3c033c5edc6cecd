"""The gRPC port, with or without TLS."""

import logging
import resource
from collections.abc import Sequence

import grpc

from server.config import ConfigError, Settings
from server.traffic.bounds import WINDOW_BYTES, Bounds
from server.traffic.ports import address, check_free

log = logging.getLogger(__name__)

OTHER_FILES = 256
"""Open files that are no connections to the gRPC port, at most: the metrics port has half of them."""

READ_BYTES = 4 * 1024
"""What gRPC reads of a connection at a time. Left alone, it keeps up to 4 MiB for each that was fast once. A piece of a
message that is not all there keeps all that was read with it: the less, the better."""

OPTIONS: Sequence[tuple[str, int]] = (
    # Else a client that keeps to the limit on streams has some refused: those that ended count until they are freed.
    ("grpc.http.overload_protection", 0),
    ("grpc.max_send_message_length", -1),  # answers are as long as the limits on requests let them be
    # What may come in that nobody reads yet. gRPC's own windows begin at 4 MiB and grow to 128 for a fast sender; a
    # message that is being read gets all the room it needs.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.experimental.tcp_max_read_buffer_size", READ_BYTES),
    # A connection that is not one of gRPC: TLS, HTTP/2 and its settings have to be there by then.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # A client whose machine or network is gone says no goodbye: ask, so that its rows do not run for nobody.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # else a minute: gRPC 1.85 never starts the clock of the line above
    # Let clients ask as well, at most every ten seconds, even between calls.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


def open_server(
    settings: Settings,
    bounds: Bounds,
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    credentials: grpc.ServerCredentials | None = None,
) -> tuple[grpc.aio.Server, int]:
    """A gRPC server, bound but not started, and its port. credentials: None is plaintext. Raises ConfigError."""
    check_free(settings.host, settings.port, "port", settings.reuse_port)
    options = [
        *OPTIONS,
        ("grpc.max_receive_message_length", bounds.transport_bytes),
        # Calls that the event loop has not taken up yet. What is beyond that gRPC cancels without a reason, by chance
        # from the first of these numbers on: it is for admission to refuse, where memory allows.
        ("grpc.server.max_pending_requests", bounds.new_calls),
        ("grpc.server.max_pending_requests_hard_limit", bounds.new_calls),
        ("grpc.max_concurrent_streams", min(settings.max_concurrent_streams, bounds.new_calls_of_one)),
        ("grpc.max_allowed_incoming_connections", _room_for(settings.max_connections)),
        ("grpc.max_connection_age_ms", round(settings.connection_age_s * 1000)),
        ("grpc.max_connection_age_grace_ms", round(settings.connection_age_grace_s * 1000)),
        ("grpc.max_connection_idle_ms", round(settings.connection_idle_s * 1000)),
        ("grpc.so_reuseport", int(settings.reuse_port)),  # not unasked: a second server would take half of the calls
    ]
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)
    server = grpc.aio.server(interceptors=interceptors, options=options)
    try:
        return server, _bind(server, settings, credentials)
    except RuntimeError as error:
        reason = str(error).partition("; set GRPC_VERBOSITY")[0]
        raise ConfigError(
            f"gRPC cannot listen on {address(settings.host, settings.port)}: {reason}; "
            "choose another port with --port, or another address with --host, in full, such as 0.0.0.0"
        ) from error


def _bind(server: grpc.aio.Server, settings: Settings, credentials: grpc.ServerCredentials | None) -> int:
    target = address(settings.host, settings.port)
    return server.add_insecure_port(target) if credentials is None else server.add_secure_port(target, credentials)


def _is_news(record: logging.LogRecord) -> bool:
    """Not that somebody left while they were sent an answer, for which gRPC has a traceback."""
    return record.exc_info is None or not isinstance(record.exc_info[1], grpc.aio.InternalError)


def _room_for(connections: int) -> int:
    """How many connections the system has open files for, of so many that are wanted; it is asked for more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = connections + OTHER_FILES
    if soft != unlimited and soft < wanted:
        soft = wanted if hard == unlimited else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = connections if soft == unlimited else min(connections, max(1, soft - OTHER_FILES))
    if room < connections:
        log.warning("%d open files (ulimit -n) leave room for %d connections, not %d", soft, room, connections)
    return room
