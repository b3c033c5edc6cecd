"""How far the command line is, on standard error."""

import sys
import time
from datetime import timedelta
from typing import Self

TERMINAL_INTERVAL_S = 0.2
LOG_INTERVAL_S = 5.0


class Progress:
    """Lines done and lines per second: one line that is written over on a terminal, a line now and then elsewhere."""

    def __init__(self, wanted: bool, unit: str = "lines") -> None:
        self._wanted, self._unit = wanted, unit
        self._terminal = sys.stderr.isatty()
        self._interval_s = TERMINAL_INTERVAL_S if self._terminal else LOG_INTERVAL_S
        self._started = self._shown = time.monotonic()
        self._lines = 0
        self._first: tuple[float, float] | None = None
        """When a share was told first, and which."""
        self._share = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._wanted:
            self._show(end="\n")

    def advance(self, lines: int = 1, share: float | None = None) -> None:
        """So many more lines are done; and, where that is known, such a share of all."""
        self._lines += lines
        if share is not None:
            self._share, self._first = share, self._first or (time.monotonic(), share)
        if self._wanted and time.monotonic() - self._shown >= self._interval_s:
            self._show(end="" if self._terminal else "\n")

    def clear(self) -> None:
        """Makes room for a message."""
        if self._wanted and self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr)

    def _show(self, end: str) -> None:
        self._shown = time.monotonic()
        rate = self._lines / max(self._shown - self._started, 1e-9)
        told = f"{self._lines} {self._unit}, {rate:.1f} {self._unit}/s"
        if self._first is not None:
            told += f", {self._share:.1%} of all"
            since, share = self._first
            if (done := self._share - share) > 0:
                left = timedelta(seconds=round((self._shown - since) / done * (1 - self._share)))
                told += f", {left} left"
        self.clear()
        print(told, end=end, file=sys.stderr, flush=True)
