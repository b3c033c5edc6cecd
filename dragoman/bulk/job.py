"""A run: file by file, window by window."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dragoman.bulk.errors import BulkError
from dragoman.bulk.journal import Done, Journal
from dragoman.bulk.memory import Memory
from dragoman.bulk.once import Once, Outcome
from dragoman.bulk.plan import Item
from dragoman.bulk.rows import Columns, Row
from dragoman.bulk.unfinished import Unfinished, opened
from dragoman.bulk.windows import Translated, batches_of, translated_windows
from dragoman.errors import DragomanError


class Report(Protocol):
    """Is told how a run goes."""

    def resumed(self, rows: int) -> None:
        """So many rows of the file were translated before."""
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
    """Translates all that is left to do. Gives the number of rows that were refused.

    asked: what the targets depend on. Raises BulkError, DragomanError or OSError; then the same run goes on later.
    """
    columns = {"column": job.columns.source, "into": job.columns.target}
    with opened(job.target, job.items, {**asked, **columns}) as unfinished:
        sizes = [item.size_bytes for item in job.items]
        refused, whole, once = 0, max(1, sum(sizes)), Once(memory)
        for number, item in enumerate(job.items):
            before = sum(sizes[:number])

            def share(of_file: float, before: int = before, size: int = sizes[number]) -> float:
                return (before + of_file * size) / whole

            if not unfinished.is_done(number, item):
                refused += _Work(item, number, job, unfinished, report, share).run(once, translated)
        unfinished.end()
    return refused


def most_batches(job: Job) -> int:
    """Batches of texts that an engine may be asked for, at most: all files are read for it. Raises OSError."""
    return sum(batches_of(item.open(job.columns).rows()) for item in job.items)


@dataclass(frozen=True, slots=True)
class _Work:
    """On one item."""

    item: Item
    number: int
    job: Job
    unfinished: Unfinished
    report: Report
    share: Callable[[float], float]
    """Of everything, by the share of this file."""

    def run(self, once: Once, translated: Translated) -> int:
        """Gives the rows that were refused."""
        with self.unfinished.journal(self.number) as journal:
            if not journal.ended:
                self._translate(journal, once, translated)
                journal.end()
            try:
                self.item.open(self.job.columns).write(self.unfinished.part(self.number), journal)
            except ValueError as error:
                raise BulkError(f"{self.item.source} has changed while it was translated") from error
        self.unfinished.put_in_place(self.number, self.item)
        return journal.refused

    def _translate(self, journal: Journal, once: Once, translated: Translated) -> None:
        """What the journal has not."""
        if journal.rows:
            self.report.resumed(journal.rows)
        rows = self.item.open(self.job.columns).rows()
        for translation, row in zip(journal, rows, strict=False):  # what the journal has, may come again in the rest
            if translation is not None and row.wanted is not None:
                once.keep(row.wanted, translation)
        with closing(translated_windows(rows, once, translated)) as windows:
            for window in windows:
                done = list[Done]()
                for row in window.rows:
                    if why := _refusal(row, window.outcomes):
                        self._refuse(row, why, journal, done)
                    outcome = window.outcomes.get(row.wanted or "")
                    done.append(False if why else outcome if isinstance(outcome, str) else None)
                journal.add(done)
                self.report.advanced(len(done), self.share(window.rows[-1].share))

    def _refuse(self, row: Row, why: str, journal: Journal, before: list[Done]) -> None:
        """Ends the run, unless it is to keep going. before: rows of the window that are done. Raises BulkError."""
        told = f"{self.item.source}: {row.place} {why}"
        if not self.job.keep_going:
            journal.add(before)
            raise BulkError(f"{told}. {journal.rows} rows are kept; the same command with --keep-going passes over it")
        self.report.passed_over(told)


def _refusal(row: Row, outcomes: Mapping[str, Outcome]) -> str:
    """Why a row has no translation that should have one. Empty: it has, or needs none."""
    if row.fault:
        return row.fault
    outcome = None if row.wanted is None else outcomes[row.wanted]
    return f"is refused: {outcome}" if isinstance(outcome, DragomanError) else ""
