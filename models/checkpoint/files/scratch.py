"""Temporary folders as large as a model, and those that runs which were killed have left."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

PREFIX = "dragoman-merged-"


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is there meanwhile, in `TMPDIR`. Raises OSError where there can be none.

    What this user's earlier runs have left there goes first: nothing of them ran when they were killed.
    """
    for folder in Path(gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # somebody else's, or in use
            _remove_left(folder)
    with TemporaryDirectory(prefix=PREFIX) as made, _opened(Path(made)) as descriptor:
        with suppress(OSError):  # file systems without locks: nobody can take it for left, either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield Path(made)


def _remove_left(folder: Path) -> None:
    """Raises OSError where the lock of whoever made it says that they are there."""
    with _opened(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = os.fstat(descriptor).st_uid == os.geteuid()
        if ours and any(folder.iterdir()):  # one that is empty may just have been made, and be locked next
            shutil.rmtree(folder)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
