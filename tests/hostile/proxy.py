"""A network between a client and a server that can fail: it falls silent, cuts connections off, or is slow."""

import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

READ_BYTES = 16 * 1024
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: what is closed is reset."""


class Proxy(socketserver.ThreadingTCPServer):
    """Of one port on loopback. Threads, because an asyncio server that closes leaves behind what connects meanwhile."""

    request_queue_size = 128

    def __init__(self, port: int) -> None:
        """port: that it stands before."""
        super().__init__(("127.0.0.1", 0), Connection)
        self.behind, self.port = port, self.server_address[1]
        self.passes = threading.Event()
        self.passes.set()
        self.connections = 0
        """That were made so far."""
        self.bytes_back = 0
        """That went to clients so far."""
        self.reset_after: int | None = None
        """Connections are reset that have brought their client so many bytes. None: none is."""
        self.bytes_per_s: float | None = None
        """Each way of a connection lets so many through. None: all."""
        self._clients = set[socket.socket]()

    def part(self) -> None:
        """From now on nothing gets through, and nobody is told: the partition of a network."""
        self.passes.clear()

    def heal(self) -> None:
        """What was held up gets through, and all after it."""
        self.passes.set()

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        self.connections += 1
        self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        self._clients.discard(request)
        request.close()  # without the farewell that the library says first, for a reset has none

    def end(self) -> None:
        """Cuts every connection off."""
        self.shutdown()
        self.heal()
        for client in list(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        self.server_close()


class Connection(socketserver.BaseRequestHandler):
    """Of one client, with one to the server behind: what ends one way ends both."""

    server: Proxy
    request: socket.socket

    def handle(self) -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.server.behind)) as behind:
            back = threading.Thread(target=self._pass, args=(behind, self.request))
            back.start()
            self._pass(self.request, behind)
            back.join()

    def _pass(self, reader: socket.socket, writer: socket.socket) -> None:
        with suppress(OSError):
            self._pass_on(reader, writer)
        for one in (reader, writer):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RD)  # wakes the other way, and says nothing to either end

    def _pass_on(self, reader: socket.socket, writer: socket.socket) -> None:
        passed = 0
        while data := reader.recv(READ_BYTES):
            self.server.passes.wait()
            if self.server.bytes_per_s is not None:
                time.sleep(len(data) / self.server.bytes_per_s)
            passed += len(data)
            if writer is self.request:
                self.server.bytes_back += len(data)
                if self.server.reset_after is not None and passed > self.server.reset_after:
                    writer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    return
            writer.sendall(data)


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """Stands before a port until the end."""
    one = Proxy(port)
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield one
    finally:
        one.end()
        thread.join()
