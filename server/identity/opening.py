"""What the settings say of who may call."""

from collections.abc import Callable
from pathlib import Path

from server.config import Settings
from server.identity.callers import read_callers
from server.identity.door import Door, ListedDoor, OpenDoor
from server.identity.reloads import Source


def open_door(settings: Settings) -> tuple[Door, list[Source]]:
    """The door, and the files that it is made of. Raises ConfigError."""
    if settings.callers is None:
        return OpenDoor(), []
    door = ListedDoor(read_callers(settings.callers))
    return door, [Source("callers", [settings.callers], _reading(door, settings.callers))]


def _reading(door: ListedDoor, file: Path) -> Callable[[], None]:
    def read() -> None:
        door.callers = read_callers(file)

    return read
