"""Files of a package, as the manifest says they are."""

import hashlib
import stat
from pathlib import Path

from models.package.manifest import FileEntry

EXPORT_AGAIN = "export the checkpoint again"
MAY_READ = "let the user that this runs as read it"


class PackageError(Exception):
    """A package that cannot be opened or written. The message names the file, and says what to do."""


def check(file: Path, expected: FileEntry) -> None:
    """Raises PackageError unless the file is what the manifest says."""
    _check_size(file, expected)
    try:
        with file.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(file, error) from error
    _check_hash(file, found, expected)


def read(file: Path, expected: FileEntry | None) -> bytes:
    """The content of a file, which is what was checked: what becomes of the file afterwards does not matter.

    expected: what the manifest says; None in a folder that is no package yet. Raises PackageError.
    """
    if expected is not None:
        _check_size(file, expected)
    try:
        with file.open("rb") as content:
            data = content.read() if expected is None else content.read(expected.size_bytes)
    except OSError as error:
        raise unreadable(file, error) from error
    if expected is not None:
        _check_hash(file, hashlib.sha256(data).hexdigest(), expected)
    return data


def _check_size(file: Path, expected: FileEntry) -> None:
    """Before anything is read: it may be huge, or something that has no end."""
    try:
        found = file.stat()
    except OSError as error:
        raise unreadable(file, error) from error
    if not stat.S_ISREG(found.st_mode):
        raise PackageError(f"{file} is no file; {EXPORT_AGAIN}")
    if found.st_size != expected.size_bytes:
        raise PackageError(
            f"{file} was changed: it has {found.st_size} bytes, the manifest says {expected.size_bytes}; {EXPORT_AGAIN}"
        )


def _check_hash(file: Path, found: str, expected: FileEntry) -> None:
    if found != expected.sha256:
        raise PackageError(
            f"{file} was changed: its SHA-256 is {found}, the manifest says {expected.sha256}; {EXPORT_AGAIN}"
        )


def unreadable(file: Path, error: OSError) -> PackageError:
    """Says why, and what to do."""
    way_out = MAY_READ if isinstance(error, PermissionError) else EXPORT_AGAIN
    return PackageError(f"{file} cannot be read ({error.strerror}); {way_out}")
