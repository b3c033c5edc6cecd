"""A network between a client and a server that can fail: it falls silent, cuts connections off, is slow, or long.

What comes in another order on its way, TCP puts right before anybody reads it: a piece that is late holds up those
behind it, here as there.
"""

import random
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from queue import SimpleQueue

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
        self.delay_s = 0.0
        """So long is each piece under way, or up to half as much more or less."""
        self.piece_bytes = READ_BYTES
        """Of what passes at a time, at most."""
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
        far = delayed(writer.sendall, self.server.delay_s) if self.server.delay_s else nullcontext(writer.sendall)
        with suppress(OSError), far as send:
            self._pass_on(reader, writer, send)
        for one in (reader, writer):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RD)  # wakes the other way, and says nothing to either end

    def _pass_on(self, reader: socket.socket, writer: socket.socket, send: Callable[[bytes], object]) -> None:
        passed = 0
        while data := reader.recv(self.server.piece_bytes):
            self.server.passes.wait()
            if self.server.bytes_per_s is not None:
                time.sleep(len(data) / self.server.bytes_per_s)
            passed += len(data)
            if writer is self.request:
                self.server.bytes_back += len(data)
                if self.server.reset_after is not None and passed > self.server.reset_after:
                    writer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    return
            send(data)


@contextmanager
def delayed(send: Callable[[bytes], object], delay_s: float) -> Iterator[Callable[[bytes], object]]:
    """Sends what it is given in the same order, each piece after its time."""
    under_way = SimpleQueue[tuple[float, bytes]]()

    def carry() -> None:
        with suppress(OSError):
            while True:
                due, data = under_way.get()
                if not data:
                    return
                time.sleep(max(0.0, due - time.monotonic()))
                send(data)

    carrier = threading.Thread(target=carry)
    carrier.start()
    try:
        yield lambda data: under_way.put((time.monotonic() + delay_s * random.uniform(0.5, 1.5), data))
    finally:
        under_way.put((0.0, b""))
        carrier.join()


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
