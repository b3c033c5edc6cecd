"""How far the command line is, on standard error."""

import sys
import time
from typing import Self

TERMINAL_INTERVAL_S = 0.2
LOG_INTERVAL_S = 5.0


class Progress:
    """Lines done and lines per second: one line that is written over on a terminal, a line now and then elsewhere."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._terminal = sys.stderr.isatty()
        self._interval_s = TERMINAL_INTERVAL_S if self._terminal else LOG_INTERVAL_S
        self._started = self._shown = time.monotonic()
        self._lines = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._wanted:
            self._show(end="\n")

    def advance(self) -> None:
        """One more line is done."""
        self._lines += 1
        if self._wanted and time.monotonic() - self._shown >= self._interval_s:
            self._show(end="" if self._terminal else "\n")

    def clear(self) -> None:
        """Makes room for a message."""
        if self._wanted and self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr)

    def _show(self, end: str) -> None:
        self._shown = time.monotonic()
        rate = self._lines / max(self._shown - self._started, 1e-9)
        self.clear()
        print(f"{self._lines} lines, {rate:.1f} lines/s", end=end, file=sys.stderr, flush=True)
