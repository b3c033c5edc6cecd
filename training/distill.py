"""Sequence-level distillation (Kim and Rush 2016, 3.2): a teacher writes the target side of a corpus.

python -m training.distill PACKAGE --source mono.en --out artifacts/mono writes mono.en and mono.pt.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from dragoman.command.flags.parsing import Outspoken, answered
from export.command.imports import answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 2 where the input is bad or the disk full, or 130 after Ctrl-C."""
    parser = Outspoken("python -m training.distill", description=__doc__, allow_abbrev=False)
    parser.add_argument("teacher", type=Path, help="package of the teacher, made by python -m export")
    parser.add_argument("--source", type=Path, required=True, help="text to translate, one sentence a line")
    parser.add_argument("--out", type=Path, required=True, help="name of the two files, without the languages")
    parser.add_argument("--num-beams", type=int, default=1, metavar="N", help="1 (default) is greedy search")
    options = parser.parse_args(arguments)

    def work() -> int:
        from training.teaching import run  # not before: torch takes seconds, and `--help` and a slip need none of it

        return run(options.teacher, options.source, options.out, options.num_beams)

    return answer(work, "training")


if __name__ == "__main__":
    sys.exit(answered(main, "python -m training.distill", failed=2))
