"""What the settings say of who may call."""

import logging
from collections.abc import Callable, Iterable

from server.config import ConfigError, Settings
from server.identity.callers import Callers, CallersFile, read_callers
from server.identity.door import Door, ListedDoor, OpenDoor
from server.identity.reloads import Source

log = logging.getLogger(__name__)

INSTALL = "pip install '.[jwt]'"
Know = Callable[[Iterable[str]], None]


def open_door(settings: Settings, know: Know = lambda names: None) -> tuple[Door, list[Source]]:
    """The door, and the files that it is made of. Raises ConfigError. know: is told the names of those listed."""
    door, sources = _listed(settings, know)
    if settings.jwt_keys is None or settings.jwt_issuer is None or settings.jwt_audience is None:
        return door or OpenDoor(), sources
    try:
        from server.identity.json_web_tokens import IssuerKeys, JwtDoor  # its packages are an extra
    except ImportError as error:
        raise ConfigError(f"jwt_keys is {settings.jwt_keys}, and PyJWT is not installed: {INSTALL}") from error
    keys = IssuerKeys(settings.jwt_keys)
    others = door or ListedDoor(Callers(CallersFile()))
    return JwtDoor(keys, settings.jwt_issuer, settings.jwt_audience, others), [*sources, keys.source]


def _listed(settings: Settings, know: Know) -> tuple[ListedDoor | None, list[Source]]:
    if (file := settings.callers) is None:
        return None, []
    door = ListedDoor(Callers(CallersFile()))

    def read() -> None:
        door.callers = read_callers(file)
        know(door.callers.names)
        _warn_of_refused(settings, door.callers)

    source = Source("callers", [file], read)
    source.read()
    return door, [source]


def _warn_of_refused(settings: Settings, callers: Callers) -> None:
    """Says who can never call. Somebody may mean it: nobody is to be let in any more, or not yet."""
    if not callers.names:
        refused = "every call is refused" if settings.jwt_keys is None else "only tokens of jwt_issuer are let in"
        log.warning("callers %s lists nobody: %s; python -m server.identity makes an entry", settings.callers, refused)
    if settings.tls_client_ca is None and callers.by_certificate_only:
        log.warning(
            "callers %s lets %s in by certificate only, and without tls_client_ca nobody is asked for one",
            settings.callers,
            ", ".join(callers.by_certificate_only),
        )
