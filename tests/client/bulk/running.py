"""Runs of bulk in this process, by somebody who translates into capital letters."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from dragoman.bulk.job import Job, run
from dragoman.bulk.memory import Memory, NoMemory
from dragoman.bulk.plan import planned
from dragoman.bulk.rows import Columns
from dragoman.bulk.windows import in_threads
from dragoman.errors import FieldViolation, InvalidArgument

REFUSED = "too long"


def capitals(texts: list[str]) -> list[str]:
    """Translates; refuses all of a call where it refuses one."""
    for index, text in enumerate(texts):
        if REFUSED in text:
            field = f"contents[{index}]"
            violations = (FieldViolation(field, "is too long"),)
            raise InvalidArgument(
                f"{field} is too long", grpc.StatusCode.INVALID_ARGUMENT, "SOURCE_TOO_LONG", {}, violations
            )
    return [text.upper() for text in texts]


@dataclass
class Heard:
    """A `Report`."""

    rows: int = 0
    before: int = 0
    share: float = 0.0
    refused: list[str] = field(default_factory=list)
    without: int = 0
    """Rows of all files that have no translation, by this run or before."""

    def resumed(self, rows: int) -> None:
        self.before += rows

    def advanced(self, rows: int, share: float) -> None:
        assert share >= self.share
        self.rows, self.share = self.rows + rows, share

    def passed_over(self, place: str) -> None:
        self.refused.append(place)


@dataclass
class Bulk:
    """How runs are made."""

    column: str = "text"
    into: str = "translation"
    format: str | None = None
    keep_going: bool = False
    memory: Memory = field(default_factory=NoMemory)
    translate: Callable[[list[str]], list[str]] = capitals
    asked: dict[str, object] = field(default_factory=dict)

    def run(self, source: Path, target: Path) -> Heard:
        """As the command does. Raises what it raises."""
        heard, columns = Heard(), Columns(self.column, self.into)
        items = planned(source, target, self.format)
        for item in items:
            item.open(columns).check()
        job, unfinished = Job(target, items, columns, self.keep_going), target.with_name(target.name + ".unfinished")
        done_before = any(unfinished.glob("*.done"))
        heard.without = run(job, self.asked, self.memory, in_threads(self.translate, 2), heard)
        assert not unfinished.exists()
        if not (heard.before or done_before):
            assert heard.without == len(heard.refused)
        return heard
