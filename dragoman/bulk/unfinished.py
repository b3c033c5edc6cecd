"""DST.unfinished: what a run has done that did not end, and what it was asked for. One run at a time.

lock       held by the process that runs
job.json   what was asked for, of what, and of which model: another run goes on only with the same
3.rows     the journal of the fourth file
3.part     what it becomes, being written
3.done     it is in its place: how many of its rows were refused

Where all is done, it is DST.unfinished.ended until it is deleted: what is left of that says nothing about a run.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from dragoman.bulk.disk import put_in_place, sync_one, write_whole
from dragoman.bulk.errors import BulkError, WrongUsage
from dragoman.bulk.journal import Journal
from dragoman.bulk.plan import Item

SUFFIX = ".unfinished"
ENDED = ".ended"
"""Behind the name of the folder."""


class Unfinished:
    """The folder of a run."""

    def __init__(self, folder: Path, sources: Sequence[object]) -> None:
        """`sources`: what each item's was when the run began, as `_described` tells it."""
        self._folder, self._sources = folder, sources

    @contextmanager
    def journal(self, number: int) -> Iterator[Journal]:
        """Of an item."""
        with closing(Journal(self._folder / f"{number}.rows")) as journal:
            yield journal

    def part(self, number: int) -> Path:
        """Where an item's target is written."""
        return self._folder / f"{number}.part"

    def is_done(self, number: int, item: Item) -> bool:
        """Whether an item's target is in its place, by this run. Raises BulkError where it is somebody else's."""
        if self._done(number).exists():
            return True
        if not item.target.exists():
            return False
        with self.journal(number) as journal:
            ended, rows, refused = journal.ended, journal.rows, journal.refused
        if not ended or self.part(number).exists():
            raise BulkError(
                f"{item.target} is there, and not by this run, which has {rows} rows of it: move it away, and run the "
                "same command again"
            )
        self._mark(number, refused)
        return True

    def put_in_place(self, number: int, item: Item, refused: int) -> None:
        """The item's target is written, with so many rows refused. From now on it has its name. Raises BulkError."""
        self.check_unchanged(number, item)
        put_in_place(self.part(number), item.target)
        self._mark(number, refused)

    @property
    def refused(self) -> int:
        """Rows of all items that are in their places, whichever run put them there."""
        return sum(int(file.read_bytes() or 0) for file in self._folder.glob("*.done"))

    def check_unchanged(self, number: int, item: Item) -> None:
        """Raises BulkError where an item's source is not what it was."""
        if _described(item) != self._sources[number]:
            raise BulkError(f"{item.source} has changed while it was translated: delete {self._folder} to begin anew")

    def _mark(self, number: int, refused: int) -> None:
        """An item is done: its journal is not needed any more."""
        write_whole(self._done(number), b"%d" % refused)
        (self._folder / f"{number}.rows").unlink()

    def _done(self, number: int) -> Path:
        return self._folder / f"{number}.done"

    @property
    def is_empty(self) -> bool:
        """Whether no row is done, of a run that has not ended."""
        if not self._folder.exists():
            return False
        return not any(file.suffix == ".done" or _has_rows(file) for file in self._folder.iterdir())

    def end(self) -> None:
        """Keeps nothing. Deleting takes many steps, and half of it would say that the targets are somebody else's."""
        ended = _ended(self._folder)
        self._folder.rename(ended)
        sync_one(ended.parent)
        shutil.rmtree(ended, ignore_errors=True)


def _has_rows(file: Path) -> bool:
    """Whether it is a journal with a line that is whole: of the first there may be a part, where the disk is full."""
    if file.suffix != ".rows":
        return False
    with file.open("rb") as journal:
        return journal.readline().endswith(b"\n")


@contextmanager
def opened(target: Path, items: Sequence[Item], asked: Mapping[str, object]) -> Iterator[Unfinished]:
    """The work on a target, begun or gone on with. Raises WrongUsage, BulkError or OSError.

    asked: what the targets depend on, by the name that a user knows
    """
    folder = target.with_name(target.name + SUFFIX)
    shutil.rmtree(_ended(folder), ignore_errors=True)  # of a run that was killed meanwhile
    if not folder.exists() and os.path.lexists(target):
        raise WrongUsage(f"{target} exists already: delete it, or write to another place")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise WrongUsage(f"{folder} cannot be a folder ({error.strerror}): write to another place") from error
    with _locked(folder / "lock", target):
        sources = list(map(_described, items))
        unfinished = Unfinished(folder, sources)
        _take_up(folder / "job.json", {**asked, "files": [*chain.from_iterable(sources)]}, unfinished.is_empty)
        sync_one(target.parent)
        try:
            yield unfinished
        except BaseException:
            if unfinished.is_empty:  # it would stand in the way of other options
                unfinished.end()
            raise


@contextmanager
def _locked(file: Path, target: Path) -> Iterator[None]:
    """Raises WrongUsage where the file system has no locks, and BulkError."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BulkError(f"another run is writing {target}: wait for it, or write to another place") from error
        except OSError as error:
            if [*file.parent.iterdir()] == [file]:
                shutil.rmtree(file.parent)
            raise WrongUsage(
                f"{file.parent} cannot be locked ({error.strerror}), and a lock keeps two runs apart: write to a file "
                "system that has locks, such as this machine's own, and copy what is done"
            ) from error
        if not _is_at(file, descriptor):
            raise BulkError(f"another run has just ended writing {target}")
        yield
    finally:
        os.close(descriptor)


def _ended(folder: Path) -> Path:
    """The name of a run's folder that is not needed any more."""
    return folder.with_name(folder.name + ENDED)


def _is_at(file: Path, descriptor: int) -> bool:
    """Whether what was opened has the name still: it may have been moved away with its folder."""
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _described(item: Item) -> list[list[object]]:
    """By what each of its files is known that has changed."""
    found = [(file, file.stat()) for file in item.files()]
    return [[str(file.resolve()), state.st_size, state.st_mtime_ns] for file, state in found]


def _take_up(file: Path, asked: Mapping[str, object], begins: bool) -> None:
    """Writes what is asked for where nothing is done yet, or compares it with what was. Raises BulkError."""
    if begins:
        write_whole(file, json.dumps(asked, indent=1).encode())
        return
    before, now = _asked_before(file), json.loads(json.dumps(asked))
    if before != now:
        name = next(name for name in [*now, *before] if before.get(name) != now.get(name))
        told, way = f"{name} was {before.get(name)}, and is {now.get(name)}", "Ask as before"
        if name == "files":
            told, way = f"its files have changed, such as {_another(before, now)}", "Put them back as they were"
        raise BulkError(
            f"{file.parent} has part of another run: {told}. {way} to go on with it, or delete the folder to begin anew"
        )


def _another(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """A file that is another than it was, or is new, or gone."""
    known, there = (list(map(json.dumps, run.get("files") or ())) for run in (before, now))
    same = set(known) & set(there)
    return next((str(json.loads(file)[0]) for file in [*there, *known] if file not in same), "their order")


def _asked_before(file: Path) -> dict[str, object]:
    """Raises BulkError."""
    try:
        before = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        before = None
    if not isinstance(before, dict):
        raise BulkError(
            f"{file} is missing or damaged, and what was asked for is not known: delete {file.parent} to begin anew"
        )
    return before
