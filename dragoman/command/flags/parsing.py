"""A command line whose errors are one line, of the command, with the way out."""

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

import dragoman

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

N = TypeVar("N", bound=argparse.Namespace)

WRONG_USAGE = 2


class Parser(argparse.ArgumentParser):
    """The flags and texts of one command. Flags may stand before, after and between the texts."""

    def __init__(self, prog: str, description: str) -> None:
        # A shortened flag would change its meaning when a longer one is added.
        super().__init__(prog, description=description, allow_abbrev=False)
        self.add_argument("--version", action="version", version=f"dragoman {dragoman.__version__}")

    def parse(self, arguments: Sequence[str], namespace: N) -> N:
        """Exits the process for wrong usage, `--help` and `--version`."""
        namespace, unknown = self.parse_known_intermixed_args(arguments, namespace)
        for argument in unknown:
            if argument.startswith("-"):
                flag = argument.partition("=")[0]
                way_out = suggest(flag, self._option_string_actions) or f"; see {self.prog} --help"
                self.error(f"{flag} is no flag{way_out}")
        if unknown:
            self.error(f"{unknown[0]!r} is not understood; see {self.prog} --help")
        return namespace

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        """Where standard output takes no help, that is an error, which argparse passes over."""
        if file is sys.stdout:
            print(message, end="", flush=True)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Exits the process."""
        self.exit(WRONG_USAGE, f"{self.prog}: {message.removeprefix('argument ')}\n")


def suggest(name: str, known: Iterable[str]) -> str:
    """The known name that may be meant."""
    words = {one.lstrip("-"): one for one in known}  # what all flags begin with makes none alike
    close = difflib.get_close_matches(name.lstrip("-"), words, n=1)
    return f"; did you mean {words[close[0]]}?" if close else ""
