"""Makes a package of a checkpoint: python -m export CHECKPOINT."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from export.arguments import PROGRAM, Options, parse


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Returns 0, 1 where the graphs differ from the checkpoint, 2 where the input is bad, or 130 after Ctrl-C.

    program: what the command is called in messages
    Exits the process for `--help`, `--version` and an option that there is not.
    """
    options = parse(arguments, program)
    try:
        with _termination_interrupts():
            return _run(options)
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130


def _run(options: Options) -> int:
    # torch takes seconds to import: neither --help nor a slip waits for it.
    from export.command import run

    return run(options)


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C, so that it too leaves nothing behind."""
    earlier = signal.getsignal(signal.SIGTERM)
    with suppress(ValueError):  # only a process's main thread can
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, earlier)


if __name__ == "__main__":
    sys.exit(main())
