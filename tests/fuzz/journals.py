"""The journal of a run that ended at any byte, or that somebody else wrote. A "+" stands for the right checksum."""

import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dragoman.bulk.journal import Journal
from tests.fuzz import Attempt


@contextmanager
def trying() -> Iterator[Attempt]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "1.rows"
        yield lambda data: attempt(file, data)


def attempt(file: Path, data: bytes) -> None:
    """It opens, whatever it is; and what was in it, and is added, is in it when it opens again."""
    file.write_bytes(b"\n".join(map(checked, data.split(b"\n"))))
    with closing(Journal(file)) as journal:
        before, refused = list(journal), journal.refused
        assert len(before) == journal.rows
        journal.add(["one", None, False])
    with closing(Journal(file)) as again:
        assert list(again) == [*before, "one", None, None]
        assert (again.rows, again.refused, again.ended) == (len(before) + 3, refused + 1, False)


def checked(line: bytes) -> bytes:
    return b"%08x %b" % (zlib.crc32(line[1:]), line[1:]) if line.startswith(b"+") else line
