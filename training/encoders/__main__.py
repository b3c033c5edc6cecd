"""Trains an encoder: python -m training.encoders CONFIG. Run it again to go on after an interruption."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dragoman.command.flags.parsing import Outspoken, answered
from export.command.imports import answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 2 where the input is bad or the disk full, or 130 after Ctrl-C."""
    parser = Outspoken("python -m training.encoders", description=__doc__, allow_abbrev=False)
    parser.add_argument("config", type=Path, help="TOML file that describes the experiment; see docs/training.md")
    options = parser.parse_args(arguments)

    def work() -> int:
        from training.encoders.run import (
            run,  # not before: torch takes seconds, and `--help` and a slip need none of it
        )

        return run(options.config)

    return answer(work, "training")


if __name__ == "__main__":
    sys.exit(answered(main, "python -m training.encoders", failed=2))
