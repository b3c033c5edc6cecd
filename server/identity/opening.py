"""What the settings say of who may call."""

from collections.abc import Callable, Iterable
from pathlib import Path

from server.config import ConfigError, Settings
from server.identity.callers import Callers, CallersFile, read_callers
from server.identity.door import Door, ListedDoor, OpenDoor
from server.identity.reloads import Source

INSTALL = "pip install '.[jwt]'"
Know = Callable[[Iterable[str]], None]


def open_door(settings: Settings, know: Know = lambda names: None) -> tuple[Door, list[Source]]:
    """The door, and the files that it is made of. Raises ConfigError. know: is told the names of those listed."""
    door, sources = _listed(settings.callers, know)
    if settings.jwt_keys is None or settings.jwt_issuer is None or settings.jwt_audience is None:
        return door or OpenDoor(), sources
    try:
        from server.identity.json_web_tokens import IssuerKeys, JwtDoor  # its packages are an extra
    except ImportError as error:
        raise ConfigError(f"jwt_keys is {settings.jwt_keys}, and PyJWT is not installed: {INSTALL}") from error
    keys = IssuerKeys(settings.jwt_keys)
    others = door or ListedDoor(Callers(CallersFile()))
    return JwtDoor(keys, settings.jwt_issuer, settings.jwt_audience, others), [*sources, keys.source]


def _listed(file: Path | None, know: Know) -> tuple[ListedDoor | None, list[Source]]:
    if file is None:
        return None, []
    door = ListedDoor(Callers(CallersFile()))

    def read() -> None:
        door.callers = read_callers(file)
        know(door.callers.names)

    source = Source("callers", [file], read)
    source.read()
    return door, [source]
