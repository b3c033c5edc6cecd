"""Makes a package of a checkpoint: python -m export CHECKPOINT."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext

from dragoman.command.flags.parsing import answered
from export.command.arguments import Options, parse
from export.command.imports import answer
from export.command.termination import termination_interrupts


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 where the graphs differ from the checkpoint, 2 where the input is bad, or 130 after Ctrl-C.

    Exits the process for `--help`, `--version` and an option that there is not.
    """
    options = parse(arguments)

    def work() -> int:
        with termination_interrupts():
            return _run(options)

    return answer(work, "export")


def _run(options: Options) -> int:
    # Imported when they are needed, torch last: neither --help nor a slip waits for what takes seconds.
    from rich.console import Console

    from export.command.progress import Progress
    from export.sources import SourceError, fetch, source_of

    progress = Progress(Console(stderr=True, emoji=False))  # ":x:" in a name is no picture
    try:
        named = source_of(options.checkpoint) != "folder"
        with progress.stage("fetch") if named else nullcontext(progress.tell) as tell:
            fetched = fetch(options.checkpoint, options.firefox_registry, tell)
    except (SourceError, OSError) as error:
        return progress.fail(error, 2)

    from export.command.run import run

    return run(options, fetched, progress)


if __name__ == "__main__":
    sys.exit(answered(main, "python -m export", failed=2))
