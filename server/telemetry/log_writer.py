"""Log lines on their way out. Whatever reads standard error may stop: nobody who logs waits for it."""

import logging
import os
import threading
from collections import deque

MAX_LINES, MAX_BYTES = 10_000, 4 * 1024 * 1024
"""Lines that may wait to be written, and what they may have together, unless it is one. What comes on top of them is
dropped, and counted."""
FLUSH_S = 0.3
"""How long the end of the process may wait for them."""


class LogWriter(logging.Handler):
    """Has lines written by a thread of its own.

    To the file descriptor itself: a Python stream that hangs would hold the interpreter's end up.
    """

    def __init__(self, fd: int, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> None:
        super().__init__()
        self.dropped = 0
        """Lines that found no room."""
        self._fd, self._max_lines, self._max_bytes = fd, max_lines, max_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        """Of the lines that wait."""
        self._changed = threading.Condition()
        """A line came, or the last one is written. Never held while one is."""
        self._writing = False
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a line, or drops it."""
        line = f"{self._told(record)}\n".encode(errors="backslashreplace")
        with self._changed:
            full = len(self._lines) == self._max_lines or self._bytes + len(line) > self._max_bytes
            if full and self._lines:
                self.dropped += 1
            else:
                self._lines.append(line)
                self._bytes += len(line)
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
                self._bytes -= len(line)
            if dropped > told:  # there is room again
                line = self._gap(dropped - told) + line
                told = dropped
            try:
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError:  # closed by whoever read it: there is nobody to tell
                self.dropped += 1

    def _told(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as error:  # `handleError` would write to the stream that may hang
            return f"{record.levelname} {record.name}: {record.msg!r} has no line: {error!r}"

    def _gap(self, lines: int) -> bytes:
        message = f"{lines} lines were dropped: standard error was not read"
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, None, None)
        return f"{self.format(record)}\n".encode()
