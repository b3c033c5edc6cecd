"""`python -m server`: serves a package until a signal.

Exit codes: 0 after a signal; 1 after one, if the engine had failed or the end took too long; 2 for settings, a package
or a device that cannot be used.
"""

import sys
from collections.abc import Sequence

from server.config import ConfigError, load_settings


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    try:
        settings = load_settings(arguments)
        from server.app import run  # not before: it takes a second, and `--help` and a mistyped flag need none of it

        return run(settings)
    except ConfigError as error:
        print(f"python -m server: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
