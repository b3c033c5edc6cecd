"""What the command line says where somebody is there, behind a door of another kind."""

import socket
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import grpc
import pytest
import trustme

from tests.client.command.command_line import Dragoman
from tests.client.fake_server import FakeServer, serving


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path) -> Path:
    """The authority's certificate, as a file."""
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(file)
    return file


def of(name: str, authority: trustme.CA) -> grpc.ServerCredentials:
    """A server's of that name."""
    issued = authority.issue_cert(name)
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    return grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])


def test_a_server_without_tls(command: Dragoman, server: FakeServer, trusted: Path) -> None:
    told = f"dragoman: {server.target} does not speak TLS; leave --tls and --ca out, or check --target\n"
    assert command("health", "--ca", trusted).err == told


def test_a_certificate_of_an_authority_that_nobody_named(command: Dragoman, trusted: Path) -> None:
    with serving(FakeServer(), of("127.0.0.1", trustme.CA())) as server:
        err = command("health", "--target", server.target, "--ca", trusted).err
        assert err.startswith(f"dragoman: the certificate of {server.target} is signed by nobody who is trusted")
        assert err.endswith("--ca\n")


def test_a_certificate_for_another_name(command: Dragoman, authority: trustme.CA, trusted: Path) -> None:
    with serving(FakeServer(), of("example.org", authority)) as server:
        told = f"dragoman: the certificate of {server.target} is for another name; check --target\n"
        assert command("translate", "a", "--target", server.target, "--ca", trusted).err.endswith(told)


def test_an_http_port_with_tls(command: Dragoman, authority: trustme.CA, trusted: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as web:
        web.socket = context.wrap_socket(web.socket, server_side=True)
        Thread(target=web.serve_forever, daemon=True).start()
        target = f"127.0.0.1:{web.server_port}"
        err = command("health", "--target", target, "--ca", trusted).err
        web.shutdown()
    assert err.startswith(f"dragoman: {target} is no gRPC port, but perhaps an HTTP port")


SETTINGS, HEADERS = 4, 1
END_HEADERS_AND_STREAM = 5
NOT_FOUND = b"\x8d"
""":status 404, by its number in HPACK's table (RFC 7541, appendix A)."""


def answer_not_found(listener: socket.socket) -> None:
    """Answers each request of a connection as a web server without such a path does."""
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as read:
        connection.sendall(frame(SETTINGS))
        read.read(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
        while head := read.read(9):
            read.read(int.from_bytes(head[:3], "big"))
            if head[3] == HEADERS:
                connection.sendall(frame(HEADERS, NOT_FOUND, END_HEADERS_AND_STREAM, head[5:]))


def frame(kind: int, content: bytes = b"", flags: int = 0, stream: bytes = b"\0\0\0\0") -> bytes:
    """Of HTTP/2 (RFC 9113)."""
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream + content


def test_a_web_server_that_speaks_http_2(command: Dragoman) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=answer_not_found, args=[listener], daemon=True).start()
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        err = command("translate", "a", "--target", target).err
    assert err == f"dragoman: {target} answers by HTTP, with 404: a proxy or another server; check --target\n"
