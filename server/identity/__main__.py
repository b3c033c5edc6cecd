"""`python -m server.identity NAME --token-file FILE`: makes a token, and the lines of `--callers` that let it in.

The token goes into a file that only its owner can read; on the screen are the lines, which have its hash alone.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dragoman.command.flags.parsing import Outspoken, answered
from server.identity.callers import Name
from server.identity.identity import USUAL_SCOPES, Scope
from server.identity.tokens import new_token, token_hash

PROG = "python -m server.identity"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    args = _flags().parse_args(arguments)
    try:
        name = TypeAdapter(Name).validate_python(args.name)
        token = new_token()
        _write(args.token_file, token)
    except ValidationError:
        told = f"{args.name!r} is no name; one has 1 to 256 visible ASCII characters, no space"
        print(f"{PROG}: {told}", file=sys.stderr)
        return 2
    except OSError as error:
        told = f"{args.token_file} cannot be made: {error.strerror}; give --token-file another place"
        print(f"{PROG}: {told}", file=sys.stderr)
        return 1
    print(entry(name, token, args.scope or sorted(USUAL_SCOPES)))
    return 0


def entry(name: str, token: str, scopes: Sequence[str]) -> str:
    """What the file of callers has to say, as TOML."""
    quoted = name.replace("\\", r"\\").replace('"', r"\"")
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    return f'[callers."{quoted}"]\ntokens = ["{token_hash(token)}"]\nscopes = [{listed}]'


def _write(file: Path, token: str) -> None:
    """A file of their own: nobody's is written over. Raises OSError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(token + "\n")
    except OSError:
        file.unlink()  # of part of a token there is no use, and the next try would find it there
        raise


def _flags() -> Outspoken:
    flags = Outspoken(PROG, description="Makes a token for a caller.", allow_abbrev=False)
    flags.add_argument("name", metavar="NAME", help="the caller's, as the log will have it")
    flags.add_argument("--token-file", type=Path, required=True, help="file to make, which will have the token")
    flags.add_argument(
        "--scope",
        action="append",
        choices=[scope.value for scope in Scope],
        help="what the caller may; may be given several times (default: all but admin)",
    )
    return flags


if __name__ == "__main__":
    sys.exit(answered(main, PROG))
