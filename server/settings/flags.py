"""The command line of the server: what a slip is told, and what `--help` says."""

import re
from argparse import Action, ArgumentParser
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from pydantic.fields import FieldInfo

METAVARS = {
    r"package": "FOLDER",
    r"config|callers|require_signed|tls_.*": "FILE",
    r"jwt_keys": "FILE|URL",
    r"jwt_issuer|jwt_audience|caller_key|http_hosts": "NAME",
    r"otlp_endpoint": "URL",
    r"host": "ADDRESS",
    r"http_cors": "ORIGIN",
    r"(.*_)?port": "PORT",
    r".*_(fraction|share|ratio|equal_texts)": "SHARE",
    r".*_per_s": "RATE",
    r".*_s": "SECONDS",
    r".*_mb": "MB",
    r".*_bytes": "BYTES",
    r"shadow_slowdown|shadow_score_difference": "NUMBER",
}
"""What `--help` calls the values of settings, by their names. Of all others, which count, it is N."""


class FlagError(Exception):
    """A command line that cannot be read. The message says which flag and why."""


class Flags(ArgumentParser):
    """Says what is wrong on one line; the usage of all flags would be twenty-five. Raises FlagError."""

    def describe(self, settings: Mapping[str, FieldInfo]) -> None:
        """Calls the values of all flags what people call them, not by their types in Python, and tells defaults so."""
        for action in self._actions:
            if (field := settings.get(action.dest)) is not None:
                if not str(action.metavar or "{").startswith("{"):  # those have choices, or no value
                    action.metavar = metavar(action.dest)
                default = "" if field.default in (None, ()) else f" (default: {_told(field.default)})"
                told = f"{field.description}{default} [env: DRAGOMAN_{action.dest.upper()}]"
                action.help = told.replace("%", "%%")  # argparse would take it for a place to fill

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


def metavar(setting: str) -> str:
    """Of its flag."""
    return next((told for names, told in METAVARS.items() if re.fullmatch(names, setting)), "N")


def _told(default: object) -> str:
    """As one would give it."""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    if isinstance(default, float):
        return f"{default:g}"
    return str(default).lower() if isinstance(default, bool) else str(default)


def suggest(name: str, known: Iterable[str]) -> str:
    """The known name that may be meant, as a way out to put behind a refusal."""
    from dragoman.command.flags import parsing  # not before: most starts have no slip

    return parsing.suggest(name, known)
