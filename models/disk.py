"""What must be on the disk when we say that it is, and whose it is."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


def told(error: Exception) -> str:
    """What an error says. Of the system's that is the file, if there is one, and the reason, without their number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def sync(path: Path) -> None:
    """Waits until a file, or a folder's list of files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def hold(folder: Path, wait: bool) -> Iterator[None]:
    """Keeps others from holding it, as long as this process lives.

    wait: until another process lets go. Raises OSError where one holds it and it does not, or there are no locks.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Waits until no other process has its turn with the folder. Where there are no locks, nobody waits."""
    with ExitStack() as held:
        with suppress(OSError):
            held.enter_context(hold(folder, wait=True))
        yield
