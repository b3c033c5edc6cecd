"""The command line of an example that writes a text."""

import argparse
from collections.abc import Callable
from pathlib import Path


def into_folder(name: str, description: str | None, write: Callable[[Path], None]) -> None:
    """Takes a folder and has it filled. Exits with 2 where that cannot be."""
    parser = argparse.ArgumentParser(f"python -m training.examples.{name}", description=description)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    try:
        write(folder)
    except OSError as error:
        parser.exit(2, f"error: {folder} cannot be written to ({error.strerror}); name another folder\n")
