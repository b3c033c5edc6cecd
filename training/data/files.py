"""Files that are there whole or not at all: written under a temporary name, then renamed."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from models.disk import sync
from training.errors import TrainingError


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """The temporary name of a file that appears, or replaces its predecessor, when the block ends without an error."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.partial")
    try:
        yield draft
        sync(draft)
        draft.replace(file)
        sync(file.parent)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            _say_where(error, file)
        raise


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """The same for a folder."""
    draft, replaced = (folder.with_name(f"{folder.name}.{suffix}") for suffix in ("partial", "replaced"))
    for leftover in (draft, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        for path in [*draft.iterdir(), draft]:
            sync(path)
        if folder.exists():
            folder.rename(replaced)
        draft.rename(folder)
        sync(folder.parent)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        _say_where(error, folder)
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _say_where(error: OSError, path: Path) -> None:
    """Who writes to a full disk is not told the name of what was written."""
    error.filename = error.filename or str(path)


@contextmanager
def claimed(folder: Path, other: str) -> Iterator[None]:
    """While it lasts no other run writes to a folder, which is made. Raises TrainingError where one does.

    other: what to choose instead
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise TrainingError(f"{folder} cannot be a folder ({error.strerror}); choose {other}") from error
    try:
        lock(descriptor, f"another run writes to {folder}: wait for it, or choose {other}")
        yield
    finally:
        os.close(descriptor)


def lock(descriptor: int, taken: str) -> None:
    """Until the descriptor of a file or folder is closed. Raises TrainingError, which says `taken`."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise TrainingError(taken) from error
    except OSError as error:  # some file systems of clusters have no locks, and are trained on nevertheless
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
            raise


def write_lines(file: Path, lines: Iterable[str]) -> None:
    """Writes a text file."""
    with new_file(file) as draft, draft.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)
