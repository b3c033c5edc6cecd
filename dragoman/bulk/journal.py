"""The translations of a file that is not finished, in the order of its rows, of which a run may end at any byte.

A line for every window: the CRC-32 of what follows, and a JSON list with a text for every row; null where there was
nothing to translate, and false where it was refused. What stands behind the last line that is whole was being written
when the run ended, and is cut off. The last line of all has no list, but null.
"""

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from dragoman.bulk.disk import sync_one, write_all

Done = str | Literal[False] | None
"""What became of a row: its translation; or False, it was refused; or None, there was nothing to translate."""


class Journal:
    """Begins where it ended. What was added stays from when `add` comes back."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path, self.rows, self.refused, self.ended = path, 0, 0, False
        """How many rows are done, how many of them were refused, and whether they are all."""
        new = not path.exists()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if new:
            sync_one(path.parent)
        whole_bytes = 0
        for line, found in self._lines():
            whole_bytes += len(line)
            self.ended = found is None
            self._count(found or ())
        os.ftruncate(self._descriptor, whole_bytes)
        os.lseek(self._descriptor, whole_bytes, os.SEEK_SET)

    def close(self) -> None:
        os.close(self._descriptor)

    def add(self, done: Sequence[Done]) -> None:
        """The next rows. Raises OSError; then it is to be opened anew."""
        self._write(list(done))
        self._count(done)

    def end(self) -> None:
        """There are no more rows."""
        self._write(None)
        self.ended = True

    def __iter__(self) -> Iterator[str | None]:
        """The translation of every row so far, or None."""
        for _, found in self._lines():
            yield from (None if done is False else done for done in found or ())

    def _count(self, done: Sequence[Done]) -> None:
        self.rows, self.refused = self.rows + len(done), self.refused + done.count(False)

    def _write(self, value: Any) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        write_all(self._descriptor, b"%08x %b\n" % (zlib.crc32(data), data))

    def _lines(self) -> Iterator[tuple[bytes, list[Done] | None]]:
        """Those that are whole, up to the first that is not."""
        with self._path.open("rb") as file:
            for line in file:
                checked, _, data = line.rstrip(b"\n").partition(b" ")
                if not line.endswith(b"\n") or checked != b"%08x" % zlib.crc32(data):
                    return
                try:
                    found = json.loads(data)
                except (ValueError, RecursionError):
                    return
                if not _is_ours(found):
                    return
                yield line, found


def _is_ours(value: Any) -> bool:
    """Whether `Journal` may have written it."""
    return value is None or (
        isinstance(value, list) and all(isinstance(row, str) or row in (None, False) for row in value)
    )
