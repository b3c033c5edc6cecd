"""What must be on the disk when we say that it is."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Waits until a file, or a folder's list of files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
