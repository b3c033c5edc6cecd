"""The HTTP port: uvicorn, on the event loop that answers gRPC too."""

import asyncio
import socket
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from starlette.types import ASGIApp
from uvicorn import Config, Server

from server.http.transport.connection import Connection, ConnectionLimits
from server.http.transport.handshakes import Handshakes
from server.http.transport.places import Places
from server.identity.tls import Tls


class Listener(Server):
    """Answers whoever connects, until it is told to stop."""

    def __init__(
        self,
        app: ASGIApp,
        limits: ConnectionLimits,
        places: Places,
        idle_s: float,
        tls: Tls | None = None,
    ) -> None:
        """idle_s: after so long, a connection without a request is closed. tls: None is plaintext."""
        config = Config(
            app,
            http=partial(Connection, limits=limits, places=places),  # type: ignore[arg-type]  # which it calls, whatever it is
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=round(idle_s),
            reset_contextvars=True,  # a call must not find that of the call before it
        )
        super().__init__(config)
        made = partial(Connection, config, self.server_state, {}, limits=limits, places=places)
        self._handshakes = None if tls is None else Handshakes(tls, places, made, config.backlog)
        self._open = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> None:
        """Returns once it answers. Closes the socket at its end."""
        self._serving = asyncio.create_task(self.serve([listener]))
        await self._open.wait()

    async def stop(self) -> None:
        """No more connections, and no more requests by those there are. Waits for those that are being answered."""
        self.should_exit = True
        if self._serving is not None:
            await self._serving

    def cut(self) -> None:
        """Cuts off whatever is not sent."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn calls it."""
        if self._handshakes is None:
            await super().startup(sockets)
        else:  # uvicorn would wait for each handshake for as long as asyncio does, and count none
            assert sockets is not None
            self._handshakes.start(sockets[0])
            self.servers, self.started = [], True
        self._open.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn calls it."""
        if self._handshakes is not None:
            self._handshakes.end()
        await super().shutdown(sockets)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """They are `server.lifecycle`'s."""
        return nullcontext()
