"""Chooses from a corpus the training text of models/zoo: python -m training.corpus.choose CORPUS OUT."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dragoman.command.flags.parsing import Outspoken, answered
from export.command.imports import answer

TEACHER, STUDENT = 48_000, 210_000
"""Sentences for the teacher and for the student to translate."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 2 where the corpus cannot be read or is too small, or 130 after Ctrl-C."""
    parser = Outspoken("python -m training.corpus.choose", description=__doc__, allow_abbrev=False)
    parser.add_argument("corpus", type=Path, help="what python -m training.corpus wrote")
    parser.add_argument(
        "out", type=Path, help="folder of teacher.en, student.en, train.en, train.pt, valid.en, valid.pt"
    )
    parser.add_argument("--teacher", type=int, default=TEACHER, metavar="N", help=f"lines of teacher.en ({TEACHER:,})")
    parser.add_argument("--student", type=int, default=STUDENT, metavar="N", help=f"lines of student.en ({STUDENT:,})")
    options = parser.parse_args(arguments)
    if min(options.teacher, options.student) < 1:
        parser.error(f"--teacher is {options.teacher} and --student {options.student}; give 1 or more of each")

    def work() -> int:
        from training.corpus.choosing import run  # not before: torch takes seconds

        return run(options.corpus, options.out, options.teacher, options.student)

    return answer(work, "training")


if __name__ == "__main__":
    sys.exit(answered(main, "python -m training.corpus.choose", failed=2))
