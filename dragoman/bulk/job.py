"""A run: all rows of all files go through windows, and each file is written once its last row is done."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path
from typing import Protocol, Self

from dragoman.bulk.errors import BulkError
from dragoman.bulk.journal import Done, Journal
from dragoman.bulk.memory import Memory
from dragoman.bulk.once import Once, Outcome
from dragoman.bulk.plan import Item
from dragoman.bulk.rows import Columns, Row
from dragoman.bulk.unfinished import Unfinished, opened
from dragoman.bulk.windows import Placed, Translated, translated_windows
from dragoman.errors import DragomanError


class Report(Protocol):
    """Is told how a run goes."""

    def resumed(self, rows: int) -> None:
        """So many rows of a file were translated before."""
        ...

    def advanced(self, rows: int, share: float) -> None:
        """So many rows more are done; and of everything, by its size, such a share."""
        ...

    def passed_over(self, place: str) -> None:
        """A row has no translation; place: where it stands, and why."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done."""

    target: Path
    items: Sequence[Item]
    columns: Columns
    keep_going: bool
    """After a row that is refused."""


def run(job: Job, asked: Mapping[str, object], memory: Memory, translated: Translated, report: Report) -> int:
    """Translates all that is left to do. Gives the number of rows that were refused, by this run or before.

    asked: what the targets depend on. Raises BulkError, DragomanError or OSError; then the same run goes on later.
    """
    columns = {"column": job.columns.source, "into": job.columns.target}
    with opened(job.target, job.items, {**asked, **columns}) as unfinished:
        once = Once(memory)
        sources = _Sources(job, unfinished, once.keep, report.resumed)
        with (
            _Targets(job, unfinished, report) as targets,
            closing(translated_windows(sources.rows(), once, translated)) as windows,
        ):
            for window in windows:
                for number, rows in groupby(window.rows, key=itemgetter(0)):
                    targets.finish(sources.read_before(number))
                    targets.add(number, [row for _, row in rows], window.outcomes)
            targets.finish(sources.read_before(len(job.items)))
        if sources.fault is not None:
            raise sources.fault
        refused = unfinished.refused
        unfinished.end()
    return refused


class _Sources:
    """Reads one file after the other."""

    def __init__(
        self, job: Job, unfinished: Unfinished, keep: Callable[[str, str], None], resumed: Callable[[int], None]
    ) -> None:
        """`keep`: is told what was translated before."""
        self._job, self._unfinished, self._keep, self._resumed = job, unfinished, keep, resumed
        self._read = deque[int]()
        """Files whose rows were all given, and that are not in their places."""
        self.fault: BulkError | OSError | None = None
        """Why it could not go on: what was read before that is done first."""

    def rows(self) -> Iterator[Placed]:
        """All that are left to do."""
        for number, item in enumerate(self._job.items):
            try:
                if not self._unfinished.is_done(number, item):
                    for row in self._rows_of(number, item):
                        yield number, row
                    self._read.append(number)
            except (BulkError, OSError) as error:
                self.fault = error
                return

    def read_before(self, number: int) -> Iterator[int]:
        """Each file that was read to its end before this one. Each is given once."""
        while self._read and self._read[0] < number:
            yield self._read.popleft()

    def _rows_of(self, number: int, item: Item) -> Iterator[Row]:
        """Those that the journal has not."""
        rows = item.open(self._job.columns).rows()
        with self._unfinished.journal(number) as journal:
            if journal.ended:
                return
            if journal.rows:
                self._resumed(journal.rows)
            for translation, row in zip(journal, rows, strict=False):
                if translation is not None and row.wanted is not None:  # it may come again in the rest
                    self._keep(row.wanted, translation)
        yield from rows


class _Targets:
    """Keeps what is done in a journal, and writes one file after the other. A context manager."""

    def __init__(self, job: Job, unfinished: Unfinished, report: Report) -> None:
        self._job, self._unfinished, self._report = job, unfinished, report
        self._sizes = [item.size_bytes for item in job.items]
        *self._before, self._whole = accumulate(self._sizes, initial=0)
        self._number = -1
        """Whose journal is open."""
        self._journal: Journal
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def add(self, number: int, rows: Sequence[Row], outcomes: Mapping[str, Outcome]) -> None:
        """The next rows of a file. Raises BulkError."""
        journal, done = self._journal_of(number), list[Done]()
        for row in rows:
            if why := _refusal(row, outcomes):
                self._refuse(f"{self._job.items[number].source}: {row.place} {why}", journal, done)
            outcome = outcomes.get(row.wanted or "")
            done.append(False if why else outcome if isinstance(outcome, str) else None)
        journal.add(done)
        of_all = self._before[number] + rows[-1].share * self._sizes[number]
        self._report.advanced(len(done), of_all / max(1, self._whole))

    def finish(self, numbers: Iterator[int]) -> None:
        """All rows of these files are there. Raises BulkError."""
        for number in numbers:
            item, journal = self._job.items[number], self._journal_of(number)
            if not journal.ended:
                journal.end()
            try:
                item.open(self._job.columns).write(self._unfinished.part(number), journal)
            except ValueError as error:
                self._unfinished.check_unchanged(number, item)
                raise BulkError(f"{item.target} cannot be written: {error}; what is translated is kept") from error
            self._unfinished.put_in_place(number, item, journal.refused)

    def _journal_of(self, number: int) -> Journal:
        if number != self._number:
            self._opened.close()
            self._number, self._journal = number, self._opened.enter_context(self._unfinished.journal(number))
        return self._journal

    def _refuse(self, told: str, journal: Journal, before: list[Done]) -> None:
        """Ends the run, unless it is to keep going. before: rows of the window that are done. Raises BulkError."""
        if not self._job.keep_going:
            if before:
                journal.add(before)
            raise BulkError(f"{told}. {journal.rows} rows are kept; the same command with --keep-going passes over it")
        self._report.passed_over(told)


def _refusal(row: Row, outcomes: Mapping[str, Outcome]) -> str:
    """Why a row has no translation that should have one. Empty: it has, or needs none."""
    if row.fault:
        return row.fault
    outcome = None if row.wanted is None else outcomes[row.wanted]
    return f"is refused: {outcome}" if isinstance(outcome, DragomanError) else ""
