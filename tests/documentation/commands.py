"""The programs and options that pages name, and those that there are."""

import contextlib
import io
import re
import runpy
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from unittest.mock import patch

FENCED = re.compile(r"^ *```\w*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n?)+", re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")
CALL = re.compile(r"(?:^|\s)(?:\S*python3? -m (?P<module>[\w.]+)|(?<!from )(?P<client>dragoman)(?= [a-z]))(?P<rest>.*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
ALIASES = {
    "dragoman serve": "server",
    "dragoman export": "export",
    "dragoman train": "training",
    "dragoman inspect": "inspection",
    "dragoman pull": "export.command.pull",
    "dragoman show": "export.command.show",
    "dragoman rm": "export.command.remove",
}
"""Commands of `dragoman` that run another program."""


@cache
def options(program: str) -> frozenset[str]:
    """Of a program, as its `--help` names them."""
    module, *command = program.split()
    shown = io.StringIO()
    with (
        patch.object(sys, "argv", [module, *command, "--help"]),
        contextlib.redirect_stdout(shown),
        contextlib.suppress(SystemExit),
        warnings.catch_warnings(action="ignore", category=RuntimeWarning),  # a module that a test has imported
    ):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    return frozenset(OPTION.findall(shown.getvalue()))


def calls(page: str) -> Iterator[tuple[str, set[str]]]:
    """Each call of a Python program, in a block or in a line, and the options it is given."""
    for block in (*FENCED.findall(page), *INDENTED.findall(page), *_quoted(page)):
        for command in re.split(r"\n|&&|\||;| &|\)", block.replace("\\\n", " ")):
            if call := CALL.search(command):
                program, rest = call["module"] or call["client"], call["rest"]
                if program == "dragoman" and (word := re.match(r" [a-z]+", rest)):
                    program += word[0]
                yield ALIASES.get(program, program), set(OPTION.findall(rest))


def named(page: str) -> set[str]:
    """The options that a page names in its text and tables, without a program: `--max-rows`, `--max-rows 8`."""
    return {option[0] for text in _quoted(page) if (option := OPTION.match(text))}


def _quoted(page: str) -> list[str]:
    return QUOTED.findall(FENCED.sub("", page))
