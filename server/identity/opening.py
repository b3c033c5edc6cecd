"""What the settings say of who may call."""

from collections.abc import Callable, Iterable

from server.config import Settings
from server.identity.callers import Callers, CallersFile, read_callers
from server.identity.door import Door, ListedDoor, OpenDoor
from server.identity.reloads import Source

Know = Callable[[Iterable[str]], None]


def open_door(settings: Settings, know: Know = lambda names: None) -> tuple[Door, list[Source]]:
    """The door, and the files that it is made of. Raises ConfigError. know: is told the names of those listed."""
    if settings.callers is None:
        return OpenDoor(), []
    file, door = settings.callers, ListedDoor(Callers(CallersFile()))

    def read() -> None:
        door.callers = read_callers(file)
        know(door.callers.names)

    read()
    return door, [Source("callers", [file], read)]
