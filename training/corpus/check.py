"""Proves that a built corpus has nothing of what models are scored with: python -m training.corpus.check FOLDER."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dragoman.command.flags.parsing import Outspoken, answered
from export.command.imports import answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 where something excluded is found, 2 where the corpus cannot be read, or 130 after Ctrl-C."""
    parser = Outspoken("python -m training.corpus.check", description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="what python -m training.corpus wrote")
    parser.add_argument("--held-out", type=Path, default=Path("tests/data"), help="folder of the sentences to look for")
    options = parser.parse_args(arguments)

    def work() -> int:
        from training.corpus.checking import run  # not before: torch takes seconds

        return run(options.folder, options.held_out)

    return answer(work, "training")


if __name__ == "__main__":
    sys.exit(answered(main, "python -m training.corpus.check", failed=2))
