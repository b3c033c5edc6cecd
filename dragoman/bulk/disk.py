"""Writing so that it is there after the power has failed."""

import os
from pathlib import Path


def write_all(descriptor: int, data: bytes) -> None:
    """Raises OSError where not all of it can be written."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)


def write_whole(file: Path, data: bytes) -> None:
    """The file has all of it from now on, or is what it was. Raises OSError."""
    fresh = file.with_suffix(".new")
    with fresh.open("wb", buffering=0) as out:
        write_all(out.fileno(), data)
    fresh.rename(file)
    sync_one(file.parent)


def sync(path: Path) -> None:
    """Of a file, or of a folder and what is in it."""
    if path.is_dir():
        for inside in path.iterdir():
            sync(inside)
    sync_one(path)


def put_in_place(part: Path, target: Path) -> None:
    """Renames what is written to what it is to be: it is there as a whole, or not at all."""
    sync(part)
    target.parent.mkdir(parents=True, exist_ok=True)
    part.rename(target)
    sync_one(target.parent)


def sync_one(path: Path) -> None:
    """Of a file, or of a folder the names that its files have."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
