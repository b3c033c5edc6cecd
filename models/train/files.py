"""Files that are there whole or not at all: written under a temporary name, then renamed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """The temporary name of a file that appears, or replaces its predecessor, when the block ends without an error."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.partial")
    try:
        yield draft
        _sync(draft)
        draft.replace(file)
        _sync(file.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
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
            _sync(path)
        if folder.exists():
            folder.rename(replaced)
        draft.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def _sync(path: Path) -> None:
    """Waits until a file, or a folder's list of files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
