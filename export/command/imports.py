"""What is said where Ctrl-C comes while torch is imported, which takes seconds, or where it is not installed."""

import sys
from collections.abc import Callable


def answer(work: Callable[[], int], program: str) -> int:
    """What `work` returns, which imports what it needs; 2 where that is not installed, or 130 after Ctrl-C."""
    try:
        return work()
    except ModuleNotFoundError as error:  # `make run` installs what serves, and no more
        print(f"error: {error.name} is not installed; {program} needs torch and more: make setup", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
