"""The command that serves packages until a signal.

Exit codes: 0 after a signal; 1 after one, if the engine had failed or the end took too long; 2 for settings, a package
or a device that cannot be used.
"""

import os
import sys
from collections.abc import Sequence
from itertools import takewhile

from models.package.checked import PackageError
from models.package.home import find, local
from server.config import PREFIX, ConfigError, load_settings


def serve(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    try:
        settings = load_settings(with_packages(arguments))
        from server.app import run  # not before: it takes half a second, and `--help` and a slip need none of it

        return run(settings)
    except ConfigError as error:
        print(f"python -m server: {error}", file=sys.stderr)
        return 2


def with_packages(arguments: Sequence[str]) -> list[str]:
    """Arguments whose first words, up to a flag, name packages: as flags. Raises ConfigError.

    Where nothing says which, it is the only package in $DRAGOMAN_HOME, if there is one; else the default.
    """
    names = list(takewhile(lambda one: not one.startswith("-"), arguments))
    rest = list(arguments[len(names) :])
    told = any(one.partition("=")[0] in ("--package", "--config") for one in rest)
    told = told or any(f"{PREFIX}{name}" in os.environ for name in ("PACKAGE", "CONFIG"))
    try:
        folders = [find(name) for name in names]
    except PackageError as error:
        raise ConfigError(str(error)) from error
    if not (folders or told) and len(kept := list(local())) == 1:
        folders = kept
    return [*rest, *(word for folder in folders for word in ("--package", str(folder)))]
