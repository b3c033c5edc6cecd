"""The command `dragoman`: what `commands.OWN` has, and what others bring (serve, export, pull, ...).

Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage, 130 interrupted by Ctrl-C,
141 whatever read the output went away.
"""

import os
import sys
from collections.abc import Sequence

import dragoman
from dragoman.command import commands
from dragoman.command.flags.parsing import DONE, FAILED, WRONG_USAGE, answered, suggest


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code. Wrong usage of a command raises SystemExit(2)."""
    command, *rest = (sys.argv[1:] if argv is None else list(argv)) or [""]
    return answered(lambda: _run(command, rest), "dragoman")


def _run(command: str, rest: Sequence[str]) -> int:
    if command in commands.OWN:
        return _call(command, rest)
    if command in ("-h", "--help"):
        print(_help())
        return DONE
    if command == "--version":
        print(f"dragoman {dragoman.__version__}")
        return DONE
    if not command:
        print(_help(), file=sys.stderr)
        return WRONG_USAGE
    if command in (there := commands.summaries()):
        return commands.run(command, rest)
    unknown = f"{command!r} is no command{suggest(command, there)}; see dragoman --help"
    print(f"dragoman: {commands.MISSING.get(command, unknown)}", file=sys.stderr)
    return WRONG_USAGE


def _call(command: str, rest: Sequence[str]) -> int:
    # gRPC reads it when it is imported. Its lines would stand among ours, and say the same in its own words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if command == "bulk":
        from dragoman.command import bulk

        return bulk.main(rest)
    if command == "completion":
        from dragoman.command import completion

        return completion.main(rest)
    import asyncio  # not before: it takes most of the start, and Ctrl-C meanwhile is one like any other

    from dragoman.command import output
    from dragoman.command.calls import CALLS
    from dragoman.command.flags.arguments import parse
    from dragoman.errors import DragomanError

    args = parse(command, rest)
    try:
        return asyncio.run(CALLS[command](args))
    except DragomanError as error:
        output.complain(output.explained(error, args.targets, args.timeout))
        return FAILED


def _help() -> str:
    lines = [f"  {name:<12}{summary}" for name, summary in commands.summaries().items()]
    return "\n".join(
        [
            "usage: dragoman COMMAND ...",
            "",
            "Client of a Dragoman translation server.",
            "",
            "commands; dragoman COMMAND --help tells of one:",
            *lines,
            "",
            "options:",
            "  -h, --help  show this",
            "  --version   show the version",
        ]
    )
