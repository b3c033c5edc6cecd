"""Packages on this machine that have a name: what `dragoman pull` makes, and other commands find."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from models.package.checked import PackageError

MANIFEST = "manifest.json"


def home() -> Path:
    """The folder of all of them: $DRAGOMAN_HOME, else of the user's data (XDG Base Directory Specification)."""
    if own := os.environ.get("DRAGOMAN_HOME"):
        return Path(own)
    return user_folder("XDG_DATA_HOME", ".local/share") / "dragoman"


def user_folder(variable: str, usual: str) -> Path:
    """The folder that a variable of XDG says, else the usual one in the user's home."""
    if said := os.environ.get(variable):
        return Path(said)
    try:
        return Path.home() / usual
    except RuntimeError:  # neither $HOME nor an account: engines of containers say / then
        return Path("/") / usual


def place_of(source: str) -> Path:
    """Where the package of a checkpoint goes: hf:OWNER/NAME@REV -> OWNER-NAME-REV."""
    return home() / re.sub(r"[^\w.-]+", "-", source.partition(":")[2]).strip("-.")


def local() -> Iterator[Path]:
    """The folders of all packages, by name."""
    if home().is_dir():
        yield from sorted(folder for folder in home().iterdir() if (folder / MANIFEST).is_file())


def find(name: str) -> Path:
    """The package of this name, or in this folder. Raises PackageError."""
    for folder in (home() / name, Path(name)):
        if (folder / MANIFEST).is_file():
            return folder
    known = ", ".join(folder.name for folder in local()) or "none"
    raise PackageError(f"{name} is neither a folder with a {MANIFEST} nor a package in {home()}, which has {known}")
