"""The translation memory: what was translated before, by which package and with which options."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from dragoman.bulk.errors import BulkError, WrongUsage

APPLICATION_ID = 0x6472676D
"""Of the files that are ours: `drgm`. SQLite keeps it at the beginning of each."""
BUSY_S = 60.0
"""How long to wait for another run that writes to it."""
AT_ONCE = 500
"""Texts of one query. SQLite takes 999 where it is old."""
SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {APPLICATION_ID};
CREATE TABLE IF NOT EXISTS ways (way INTEGER PRIMARY KEY, packages TEXT, options TEXT, UNIQUE (packages, options));
CREATE TABLE IF NOT EXISTS translations (way INTEGER REFERENCES ways, source TEXT, target TEXT,
                                         PRIMARY KEY (way, source)) WITHOUT ROWID;
COMMIT;
"""
"""All of it, or nothing where the disk is full."""


class Memory(Protocol):
    """What is known."""

    def find(self, texts: Iterable[str]) -> dict[str, str]:
        """The translations of those that have one."""
        ...

    def keep(self, translations: Mapping[str, str]) -> None:
        """From now on they are known."""
        ...


class NoMemory:
    """Nothing is."""

    def find(self, texts: Iterable[str]) -> dict[str, str]:
        return {}

    def keep(self, translations: Mapping[str, str]) -> None: ...


class SqliteMemory:
    """What a file knows of one way to translate. Several runs may use it at a time."""

    def __init__(self, database: sqlite3.Connection, file: Path, way: int) -> None:
        self._database, self._file, self._way = database, file, way

    def find(self, texts: Iterable[str]) -> dict[str, str]:
        """Raises BulkError."""
        asked, found = list(texts), dict[str, str]()
        for first in range(0, len(asked), AT_ONCE):
            some = asked[first : first + AT_ONCE]
            marks = ",".join("?" * len(some))
            query = (
                "SELECT source, target FROM translations "
                f"WHERE way = ? AND source IN ({marks}) AND typeof(target) = 'text'"  # others may write to it, too
            )
            with self._failing():
                found.update(self._database.execute(query, (self._way, *some)))
        return found

    def keep(self, translations: Mapping[str, str]) -> None:
        """Raises BulkError."""
        with self._failing(), self._database:
            self._database.executemany(
                "INSERT OR REPLACE INTO translations VALUES (?, ?, ?)",
                ((self._way, source, target) for source, target in translations.items()),
            )

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise BulkError(
                f"{self._file}: {error}; the run goes on with the same command, or without --memory"
            ) from error


@contextmanager
def open_memory(file: Path | None, packages: Sequence[str], options: Mapping[str, object]) -> Iterator[Memory]:
    """What is known of translations by these packages with these options. None: no file, and nothing is known.

    packages: their SHA-256. Raises WrongUsage where the file is none of ours.
    """
    if file is None:
        yield NoMemory()
        return
    try:
        database = sqlite3.connect(file.absolute(), timeout=BUSY_S)  # ":memory:" is a file like any other
    except sqlite3.Error as error:
        raise WrongUsage(f"{file} cannot be a memory: {error}") from error
    try:
        way = _way(database, file, " ".join(packages), json.dumps(options, sort_keys=True))
        yield SqliteMemory(database, file, way)
    finally:
        database.close()


def _way(database: sqlite3.Connection, file: Path, packages: str, options: str) -> int:
    """The number of a way to translate. Raises WrongUsage."""
    try:
        tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise WrongUsage(f"{file} is a database of something else: give the memory another file")
        database.execute("PRAGMA journal_mode = WAL")
        # What a power failure takes of the memory, is translated again: the results are in the journal.
        database.execute("PRAGMA synchronous = NORMAL")
        if not tables:
            database.executescript(SCHEMA)
        with database:
            database.execute("INSERT OR IGNORE INTO ways (packages, options) VALUES (?, ?)", (packages, options))
        found = database.execute("SELECT way FROM ways WHERE packages = ? AND options = ?", (packages, options))
        way: int = found.fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise WrongUsage(f"{file} cannot be a memory: {error}") from error
    return way
