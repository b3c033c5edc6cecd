"""What the values of arguments mean. ArgumentTypeError's message is shown with the argument's name.

It imports nothing but Python's own at the top: `bench.gpu_check` reads its arguments before it installs the rest.
"""

import argparse
import os
from math import inf
from pathlib import Path


def package_at(given: str) -> Path:
    """The folder of a package that is whole: a measurement says so before it begins, and not amid its work."""
    from models.package.checked import PackageError
    from models.package.folder import Package

    try:
        return Package.open(Path(given)).folder
    except PackageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def folder_at(given: str) -> Path:
    """A folder that is there."""
    if not (path := Path(given)).is_dir():
        raise argparse.ArgumentTypeError(f"{given} is no folder")
    return path


def file_at(given: str) -> Path:
    """A file that is there."""
    if not (path := Path(given)).is_file():
        raise argparse.ArgumentTypeError(f"{given} is no file")
    return path


def new_file(given: str) -> Path:
    """A file to write, in a folder that is there: what took hours is not to be lost for it."""
    if not (path := Path(given)).parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path.parent} is no folder: make it first, or write to another place")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{given} is a folder: name a file in it")
    return path


def folder_to_fill(given: str) -> Path:
    """A folder to write to, which is made if it is not there, for the same reason."""
    path = Path(given)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{given} cannot be a folder ({error.strerror}): write to another") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{given} is a folder that takes no files: write to another")
    return path


def whole(given: str) -> int:
    """A number of things, of which there is one at least."""
    if (value := int(given)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def beams(given: str) -> int:
    """As many as a server takes."""
    from server.catalog.served_model import MOST_BEAMS

    if (value := whole(given)) > MOST_BEAMS:
        raise argparse.ArgumentTypeError(f"{value} is more than {MOST_BEAMS}, the most that a server takes")
    return value


def positive(given: str) -> float:
    """A number above 0 that is finite."""
    if not 0 < (value := float(given)) < inf:
        raise argparse.ArgumentTypeError(f"{given} is no number above 0")
    return value


def not_negative(given: str) -> float:
    """The same, or 0."""
    return positive(given) if float(given) else 0.0


def seed(given: str) -> int:
    """Of what is left to chance."""
    if (value := int(given)) < 0:
        raise argparse.ArgumentTypeError(f"{value} is less than 0")
    return value
