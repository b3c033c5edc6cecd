"""`python -m bench.soak.faulty_server`: a server whose engine crashes, hangs and finds no memory now and then."""

import random
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from engine.batch.searched_rows import SearchedRows
from engine.decoder import Found
from kernels.steps import Arrivals
from server.__main__ import main as server

TURNS_BETWEEN = 500
"""Between two faults, on average."""
HANGS = 0.05
"""How many of them are hangs, which it takes ten seconds to notice."""
HANG_S = 60.0
"""How long one is. Its thread, which another has replaced by then, fails when it comes back and frees what it has."""

end_steps = SearchedRows.end_steps


def end_or_fail(
    rows: SearchedRows[Any], most: int, called: Callable[[], bool], arrivals: Arrivals | None
) -> tuple[Found, int]:
    """Stands for the end of the steps of a turn."""
    if random.random() < 1 / TURNS_BETWEEN:
        if random.random() < HANGS:
            threading.Event().wait(HANG_S)
        raise random.choice((RuntimeError("a kernel is broken"), MemoryError()))
    return end_steps(rows, most, called, arrivals)


def main(arguments: Sequence[str]) -> int:
    """Serves so. Returns the exit code."""
    SearchedRows.end_steps = end_or_fail  # type: ignore[assignment, method-assign]
    return server(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
