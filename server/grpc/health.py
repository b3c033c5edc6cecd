"""grpc.health.v1. A watcher holds up nobody: it is told the latest status when it has read the one before."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

import grpc
from grpc_health.v1.health_pb2 import (  # type: ignore[attr-defined]  # its published types know no List
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)
from grpc_health.v1.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server

from server.errors import Draining, ServiceNotFound, TooManyWatchers
from server.grpc.rpc import Context
from server.traffic.bounds import MOST_WATCHERS, MOST_WATCHERS_OF_ONE

SERVICE = "grpc.health.v1.Health"


class Health(HealthServicer):
    """The status of the whole server ("") and of each service. Not serving at first.

    See https://github.com/grpc/grpc/blob/master/doc/health-checking.md.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self._states: dict[str, int] = dict.fromkeys(("", *services), HealthCheckResponse.NOT_SERVING)
        self._changed = asyncio.Event()
        """Set at the next change, and then replaced."""
        self._ended = False
        self._watchers = Counter[str]()
        """Of each connection."""

    @property
    def state(self) -> str:
        """Of the whole server, in a word: "ok", "draining" or "not serving"."""
        if self._ended:
            return "draining"
        return "ok" if self._states[""] == HealthCheckResponse.SERVING else "not serving"

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the service to a server."""
        add_HealthServicer_to_server(self, server)

    def set(self, serving: bool) -> None:
        """Changes the state of all services, unless `end` was called."""
        if not self._ended:
            self._change(HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING)

    def end(self) -> None:
        """Not serving, for ever. Watchers are told so, and to go."""
        self._ended = True
        self._change(HealthCheckResponse.NOT_SERVING)

    def _change(self, state: int) -> None:
        self._states = dict.fromkeys(self._states, state)
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(self, request: HealthCheckRequest, context: Context) -> HealthCheckResponse:
        """The status of a service now."""
        if request.service not in self._states:
            raise ServiceNotFound(request.service, list(self._states))
        return HealthCheckResponse(status=self._states[request.service])

    async def List(self, request: HealthListRequest, context: Context) -> HealthListResponse:
        """The status of every service now."""
        statuses = {name: HealthCheckResponse(status=state) for name, state in self._states.items()}
        return HealthListResponse(statuses=statuses)

    async def Watch(self, request: HealthCheckRequest, context: Context) -> AsyncIterator[HealthCheckResponse]:
        """The status of a service now, and whenever it has changed. Raises TooManyWatchers; Draining at the end."""
        told = None
        with self._watching(context.peer()):
            while True:
                changed, state = self._changed, self._states.get(request.service, HealthCheckResponse.SERVICE_UNKNOWN)
                if state != told:
                    yield HealthCheckResponse(status=state)  # comes back once the watcher has room for another
                    told = state
                elif self._ended:
                    raise Draining
                else:
                    await changed.wait()

    @contextmanager
    def _watching(self, connection: str) -> Iterator[None]:
        """One of a bounded number: a watcher that is told nothing takes memory for as long as it likes."""
        for watchers, most, of in (
            (self._watchers[connection], MOST_WATCHERS_OF_ONE, "this connection"),
            (self._watchers.total(), MOST_WATCHERS, "the server"),
        ):
            if watchers >= most:
                raise TooManyWatchers(watchers, most, of)
        self._watchers[connection] += 1
        try:
            yield
        finally:
            self._watchers[connection] -= 1
            if not self._watchers[connection]:
                del self._watchers[connection]
