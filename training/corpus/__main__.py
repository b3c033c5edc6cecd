"""Builds the training text English - Portuguese from Debian's packages. Run it again to go on after an interruption."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dragoman.command.flags.parsing import Outspoken, answered
from export.command.imports import answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 2 where the corpus cannot be built, or 130 after Ctrl-C."""
    return answer(lambda: _main(arguments), "training")


def _main(arguments: Sequence[str] | None) -> int:
    from training.corpus.sources.all_sources import SOURCES

    parser = Outspoken("python -m training.corpus", description=__doc__, allow_abbrev=False)
    parser.add_argument("out", type=Path, help="folder of the texts and their card, README.md")
    parser.add_argument("--work", type=Path, help="folder of the unpacked packages, 2.5 GB; default: OUT/work")
    parser.add_argument(
        "--held-out", type=Path, default=Path("tests/data"), help="folder of the sentences to leave out"
    )
    parser.add_argument("--skip-missing", action="store_true", help="build without packages that apt does not know")
    parser.add_argument(
        "--source", action="append", choices=[source.name for source in SOURCES], help="only this one; several times"
    )
    options = parser.parse_args(arguments)
    sources = [source for source in SOURCES if options.source is None or source.name in options.source]

    from training.corpus.building import run  # not before: torch takes seconds, and `--help` and a slip need none of it

    return run(sources, options.out, options.work or options.out / "work", options.held_out, options.skip_missing)


if __name__ == "__main__":
    sys.exit(answered(main, "python -m training.corpus", failed=2))
