"""Connections by TLS. Each begins with a handshake, which is bounded in number and in time as connections are."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from server.http.transport.connection import host_of
from server.http.transport.places import Places
from server.identity.tls import Tls

HANDSHAKE_S = 10.0
"""How long one may take. Those of gRPC may as long."""
NO_FILES_S = 0.1
"""How long to wait where nobody can be accepted, such as for want of open files."""


class Handshakes:
    """Accepts whoever connects to a port."""

    def __init__(self, tls: Tls, places: Places, made: Callable[[], asyncio.Protocol], backlog: int) -> None:
        """made: makes a connection, which takes its place, of whoever has the keys.

        Where there are no more places than handshakes, one more takes that of the oldest, which its client is in no
        hurry with.
        """
        self._tls, self._places, self._made, self._backlog = tls, places, made, backlog
        self._under_way = dict[asyncio.Task[None], None]()
        """The oldest first."""
        self._accepting: asyncio.Task[None] | None = None

    def start(self, listener: socket.socket) -> None:
        """From now on."""
        listener.setblocking(False)
        listener.listen(self._backlog)
        self._accepting = asyncio.create_task(self._accept(listener))

    def end(self) -> None:
        """Nobody is accepted any more, and handshakes are given up."""
        for task in (self._accepting, *self._under_way):
            if task is not None:
                task.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(NO_FILES_S)
            else:
                self._begin(accepted, host_of(peer))

    def _begin(self, accepted: socket.socket, host: str) -> None:
        if not self._places.free(host):
            accepted.close()
            return
        if self._under_way and self._places.taken + len(self._under_way) >= self._places.most:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.cancel()
        shaking = asyncio.create_task(self._shake(accepted))
        self._under_way[shaking] = None
        shaking.add_done_callback(partial(self._over, accepted))

    def _over(self, accepted: socket.socket, shaking: asyncio.Task[None]) -> None:
        self._under_way.pop(shaking, None)
        if shaking.cancelled():  # perhaps before it began
            accepted.close()

    async def _shake(self, accepted: socket.socket) -> None:
        """With what was read last: who began a session before that has to show its certificate again."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # as ssl.SSLError is: too late, no TLS, or a certificate that will not do
            await loop.connect_accepted_socket(
                self._made, accepted, ssl=self._tls.context, ssl_handshake_timeout=HANDSHAKE_S
            )
