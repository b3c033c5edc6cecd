"""The command line of the server: what a slip is told, and what `--help` says."""

import re
from argparse import Action, ArgumentParser
from collections.abc import Iterable
from typing import Any, NoReturn


class FlagError(Exception):
    """A command line that cannot be read. The message says which flag and why."""


class Flags(ArgumentParser):
    """Says what is wrong on one line; the usage of all flags would be twenty-five. Raises FlagError."""

    def error(self, message: str) -> NoReturn:
        known, unknown, arguments = message.partition("unrecognized arguments: ")
        if not unknown:
            known = re.sub(r"ignored explicit argument (.*)", r"takes no value, and has \1", known)
            raise FlagError(known.removeprefix("argument "))
        flag = arguments.split(" ")[0].partition("=")[0]
        way_out = suggest(flag, self._option_string_actions)
        if not flag.startswith("-"):
            way_out = "; packages are named before all flags, and those of yes or no, such as --no-http, take no value"
        raise FlagError(f"{flag} is no flag{way_out}")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Where standard output takes no help, that is an error, which argparse passes over."""
        try:
            print(message, end="", file=file, flush=True)
        except BrokenPipeError:  # nobody reads on
            pass
        except OSError as error:
            raise FlagError(f"standard output: {error.strerror}") from error


class ShowVersion(Action):
    """Tells the version of the checkout, which nobody may have installed, and exits."""

    def __call__(self, parser: ArgumentParser, *_: object) -> None:
        from dragoman import __version__  # not before: it takes longer than all of this file

        parser._print_message(f"Dragoman {__version__}\n")
        parser.exit()


def suggest(name: str, known: Iterable[str]) -> str:
    """The known name that may be meant, as a way out to put behind a refusal."""
    from dragoman.command.flags import parsing  # not before: most starts have no slip

    return parsing.suggest(name, known)
