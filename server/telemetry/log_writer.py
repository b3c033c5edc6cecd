"""Log lines on their way out. Whatever reads standard error may stop: nobody who logs waits for it."""

import logging
import os
import threading
from collections import deque

MAX_LINES = 10_000
"""Lines that may wait to be written. What comes on top of them is dropped, and counted."""
FLUSH_S = 0.3
"""How long the end of the process may wait for them."""


class LogWriter(logging.Handler):
    """Has lines written by a thread of its own.

    To the file descriptor itself: a Python stream that hangs would hold the interpreter's end up.
    """

    def __init__(self, fd: int, max_lines: int = MAX_LINES) -> None:
        super().__init__()
        self.dropped = 0
        """Lines that found no room."""
        self._fd, self._max_lines = fd, max_lines
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        """A line came, or the last one is written. Never held while one is."""
        self._writing = False
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a line, or drops it."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            if len(self._lines) == self._max_lines:
                self.dropped += 1
            else:
                self._lines.append(line)
                self._changed.notify_all()

    def flush(self) -> None:
        """Waits until all lines are written, but not for long. Called by `logging` at the end, too."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._writing, FLUSH_S)

    def _write(self) -> None:
        told = 0
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines)
                self._writing, line, dropped = True, self._lines.popleft(), self.dropped
            if dropped > told:  # there is room again
                line = self._gap(dropped - told) + line
                told = dropped
            try:
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError:  # closed by whoever read it: there is nobody to tell
                self.dropped += 1

    def _gap(self, lines: int) -> bytes:
        message = f"{lines} lines were dropped: standard error was not read"
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, None, None)
        return f"{self.format(record)}\n".encode()
