"""Completion for shells: `dragoman completion bash`."""

import argparse
from collections.abc import Sequence
from importlib.util import find_spec

from dragoman.command import bulk
from dragoman.command.commands import OWN, summaries
from dragoman.command.flags.declared import parser
from dragoman.command.flags.parsing import Parser

SHELLS = ("bash", "zsh", "fish")
NAME = "completion"


def main(arguments: Sequence[str]) -> int:
    """Prints the script of a shell, and returns 0. Exits the process for wrong usage."""
    flags = Parser(f"dragoman {NAME}", OWN[NAME])
    flags.add_argument("shell", choices=SHELLS, help="what to complete in")
    asked = flags.parse(arguments, argparse.Namespace())
    if find_spec("shtab") is None:
        flags.error("takes shtab, which is not installed: pip install 'dragoman[completion]'")
    import shtab  # not before: it is an extra

    print(shtab.complete(_commands(flags), asked.shell))
    return 0


def _commands(own: Parser) -> argparse.ArgumentParser:
    """All commands that are there. Of those of other packages, the names alone. `own`: the flags of this one."""
    root = argparse.ArgumentParser("dragoman")
    commands = root.add_subparsers()
    for name, summary in summaries().items():
        if name == NAME:
            flags = [own]
        elif name == "bulk":
            flags = [bulk.parser()]
        else:
            flags = [parser(name)] if name in OWN else []
        commands.add_parser(name, help=summary, parents=flags, add_help=not flags)
    return root
