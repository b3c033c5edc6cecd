"""A command line whose errors are one line, of the command, with the way out."""

import argparse
import difflib
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

import dragoman

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

N = TypeVar("N", bound=argparse.Namespace)

DONE, FAILED, WRONG_USAGE, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141


def answered(work: Callable[[], int], program: str, failed: int = FAILED) -> int:
    """The exit code that `work` returns, or `failed` where what it writes can go nowhere: one line says why."""
    _have_streams()
    try:
        try:
            return work()
        finally:  # also where a parser exits
            sys.stdout.flush()  # what cannot be written fails here, and not when the interpreter ends
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = PIPE_CLOSED
    except OSError as error:
        print(f"{program}: {error.filename or 'input or output'}: {error.strerror or error}", file=sys.stderr)
        code = failed
    _drop_output()
    return code


class Outspoken(argparse.ArgumentParser):
    """Where standard output takes no help, that is an error, which argparse passes over."""

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        """Raises OSError."""
        if file is sys.stdout:
            print(message, end="", flush=True)
        else:
            super()._print_message(message, file)


class Parser(Outspoken):
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

    def error(self, message: str) -> NoReturn:
        """Exits the process."""
        self.exit(WRONG_USAGE, f"{self.prog}: {message.removeprefix('argument ')}\n")


def suggest(name: str, known: Iterable[str]) -> str:
    """The known name that may be meant."""
    words = {one.lstrip("-"): one for one in known}  # what all flags begin with makes none alike
    close = difflib.get_close_matches(name.lstrip("-"), words, n=1)
    return f"; did you mean {words[close[0]]}?" if close else ""


def _have_streams() -> None:
    """Output goes nowhere that was closed at the start, where Python has no stream; elsewhere it is UTF-8."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # to the end of the process
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files may have what is not UTF-8
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _drop_output() -> None:
    """Where standard output takes no more, lets the interpreter's last flush go nowhere instead of failing."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
