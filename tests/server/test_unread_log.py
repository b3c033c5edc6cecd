"""A server whose standard error nobody reads, as a process."""

import signal
import socket
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
import trustme

from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.server_process import WAIT_S, server_process

ZOO = Path(__file__).parents[2] / "models" / "zoo" / "en-pt"
CALLS = 400
"""Of some 300 bytes in the log each: more than a pipe has room for."""
HANDSHAKES = 600
"""Of some 200 bytes each, where gRPC tells them."""


def test_it_answers_and_ends() -> None:
    with server_process(ZOO, "--log-requests") as server, grpc.insecure_channel(server.target) as channel:
        translations = TranslationServiceStub(channel)
        for _ in range(CALLS):
            with pytest.raises(grpc.RpcError, match="0 texts"):
                translations.Translate(TranslateRequest(), timeout=WAIT_S)
        answer = translations.Translate(TranslateRequest(contents=["A cat."]), timeout=WAIT_S)
        assert len(answer.translations) == 1
        assert server.end(signal.SIGTERM) == 0


def test_handshakes_that_fail_hold_up_nobody(tmp_path: Path) -> None:
    """gRPC's own lines, which it writes on the threads that serve all connections."""
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    certificate, key, roots = (tmp_path / name for name in ("certificate.pem", "key.pem", "roots.pem"))
    certificate.write_bytes(b"".join(pem.bytes() for pem in own.cert_chain_pems))
    key.write_bytes(own.private_key_pem.bytes())
    authority.cert_pem.write_to_path(roots)
    credentials = grpc.ssl_channel_credentials(roots.read_bytes())
    with server_process(ZOO, "--tls-certificate", certificate, "--tls-key", key) as server:
        for _ in range(HANDSHAKES):
            with socket.create_connection(("127.0.0.1", server.port), WAIT_S) as connection, suppress(OSError):
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                connection.recv(1)
        with grpc.secure_channel(server.target, credentials) as channel:
            request = TranslateRequest(contents=["A cat."])
            assert TranslationServiceStub(channel).Translate(request, timeout=WAIT_S).translations
        assert server.end(signal.SIGTERM) == 0
