"""A network between a client and a server that can fail: it falls silent, cuts connections off, or is slow."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

READ_BYTES = 16 * 1024
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: what is closed is reset."""


class Proxy:
    """Of one port on loopback. Its methods may be called from any thread."""

    def __init__(self, port: int) -> None:
        """port: that it stands before."""
        self._port, self._loop = port, asyncio.new_event_loop()
        self._passes = asyncio.Event()
        self._passes.set()
        self._open = set[asyncio.StreamWriter]()
        self.port = 0
        self.connections = 0
        """That were made so far."""
        self.bytes_back = 0
        """That went to clients so far."""
        self.reset_after: int | None = None
        """Connections are reset that have brought their client so many bytes. None: none is."""
        self.bytes_per_s: float | None = None
        """Each way of a connection lets so many through. None: all."""

    def part(self) -> None:
        """From now on nothing gets through, and nobody is told: the partition of a network."""
        self._loop.call_soon_threadsafe(self._passes.clear)

    def heal(self) -> None:
        """What was held up gets through, and all after it."""
        self._loop.call_soon_threadsafe(self._passes.set)

    async def _serve(self, ready: threading.Event, end: asyncio.Event) -> None:
        async with await asyncio.start_server(self._accept, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await end.wait()
            server.close()
            self._passes.set()
            while left := asyncio.all_tasks() - {asyncio.current_task()}:  # clients that connect again bring new ones
                for writer in list(self._open):
                    writer.transport.abort()
                await asyncio.wait(left, timeout=0.05)
            await asyncio.sleep(0)  # until the loop has closed what is aborted

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        ways = [asyncio.create_task(self._pass(reader, back)), asyncio.create_task(self._pass(there, writer, True))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)
        for one in (writer, back):
            one.transport.abort()
        self._open -= {writer, back}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: bool = False) -> None:
        passed = 0
        with suppress(OSError):
            while data := await reader.read(READ_BYTES):
                await self._passes.wait()
                if self.bytes_per_s is not None:
                    await asyncio.sleep(len(data) / self.bytes_per_s)
                passed += len(data)
                if back:
                    self.bytes_back += len(data)
                    if self.reset_after is not None and passed > self.reset_after:
                        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                        return
                writer.write(data)
                await writer.drain()


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """Stands before a port until the end."""
    one, ready, end = Proxy(port), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=lambda: one._loop.run_until_complete(one._serve(ready, end)))
    thread.start()
    try:
        ready.wait()
        yield one
    finally:
        one._loop.call_soon_threadsafe(end.set)
        thread.join()
        one._loop.close()
