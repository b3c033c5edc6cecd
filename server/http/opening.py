"""What the settings say of the HTTP port, and whether what it takes is installed."""

from collections.abc import Awaitable, Callable

from dragoman import __version__
from server.api.documents import Documents
from server.api.methods import methods
from server.catalog.catalog import Catalog
from server.catalog.reloading import Reload
from server.config import Settings
from server.http.app import Served, application
from server.http.compatible.detection import Langid, Ranking
from server.http.face import Desk
from server.http.guard import LOOPBACK
from server.http.transport.connection import ConnectionLimits
from server.http.transport.listener import Listener
from server.http.transport.places import Places
from server.identity.entrance import Entrance
from server.identity.tls import Tls, is_loopback
from server.telemetry.observed import ObservedCalls
from server.traffic.ports import address, bind
from server.traffic.traffic import Traffic
from server.translation.translator import Translator


class HttpPort:
    """A port that is ours, and is not answered yet."""

    def __init__(
        self,
        settings: Settings,
        detector: Callable[[tuple[str, ...]], Ranking] = Langid,
        grpc_port: int | None = None,
    ) -> None:
        """Raises ConfigError.

        detector: loads what tells these languages apart. grpc_port: that is open, where the settings leave it open
        """
        self._settings, self._detector, self._grpc_port = settings, detector, grpc_port or settings.port
        self._listener = bind(settings.host, settings.http_port, "http_port")
        self.address = address(settings.host, self._listener.getsockname()[1])
        """As URLs have it."""

    def close(self) -> None:
        """Gives it back, where it was never opened."""
        self._listener.close()

    async def open(
        self,
        models: Catalog[Translator],
        documents: Documents,
        calls: ObservedCalls,
        entrance: Entrance,
        traffic: Traffic,
        health: Callable[[], str],
        metrics: Callable[[bool], Awaitable[bytes]],
        tls: Tls | None = None,
        keys: bool = False,
        reload: Reload | None = None,
    ) -> Listener:
        """Answers from now on. keys: callers need one. reload: takes up new versions of models."""
        settings = self._settings
        offered = list(methods(models, documents, settings.pivot, reload))
        own = __version__, self._grpc_port
        served = Served(models, offered, documents, self._detector, health, metrics, keys, *own)
        desk = Desk(calls, entrance, traffic)
        app = application(served, desk, served_hosts(settings), settings.http_cors)
        connections = ConnectionLimits(
            settings.request_timeout_s,
            settings.connection_age_s,
            settings.connection_age_grace_s,
        )
        http = Listener(app, connections, Places(settings.max_connections), settings.connection_idle_s, tls)
        await http.start(self._listener)
        return http


def served_hosts(settings: Settings) -> frozenset[str]:
    """Names that requests may be for. Empty: any."""
    if not (settings.http_hosts or is_loopback(settings.host)):
        return frozenset()
    own = address(settings.host, 0).rpartition(":")[0]
    return LOOPBACK | {own.lower(), *map(str.lower, settings.http_hosts)}
