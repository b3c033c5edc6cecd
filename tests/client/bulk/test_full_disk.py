"""A disk that fills up in the middle of a run: what is done is kept, and the same run goes on. /dev/full is one."""

import errno
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dragoman.bulk import windows
from dragoman.bulk.disk import write_all
from dragoman.bulk.errors import BulkError
from dragoman.bulk.memory import SqliteMemory, open_memory
from dragoman.bulk.unfinished import Unfinished
from tests.client.bulk.running import Bulk, capitals

TEXTS = [f"text {number}" for number in range(20)]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "ROWS", 4)


def write(source: Path) -> None:
    """All texts, as the name says."""
    if source.suffix == ".parquet":
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pa.table({"text": TEXTS}), source)
        return
    form = {".txt": "{}\n", ".jsonl": '{{"text": "{}"}}\n', ".csv": "{}\n"}[source.suffix]
    first = "text\n" if source.suffix == ".csv" else ""
    source.write_text(first + "".join(map(form.format, TEXTS)))


def nobody(texts: list[str]) -> list[str]:
    raise AssertionError(texts)


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".parquet"])
def test_a_target_that_has_no_room_is_written_later_of_what_is_translated(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    write(source)
    with monkeypatch.context() as full:
        full.setattr(Unfinished, "part", lambda *_: Path("/dev/full"))
        with pytest.raises(OSError, match="No space left on device"):
            Bulk().run(source, target)
    assert not target.exists()
    assert Bulk(translate=nobody).run(source, target).before == 0  # the journal has its end
    Bulk().run(source, whole := tmp_path / f"whole{suffix}")
    assert target.read_bytes() == whole.read_bytes()


def test_a_journal_that_has_no_room_keeps_the_windows_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, added = tmp_path / "a.txt", tmp_path / "b.txt", list[bytes]()
    write(source)

    def once(descriptor: int, data: bytes) -> None:
        """Half of the third line is on the disk when it is full."""
        added.append(data)
        if len(added) == 3:
            write_all(descriptor, data[:9])
            raise OSError(errno.ENOSPC, "No space left on device")
        write_all(descriptor, data)

    with monkeypatch.context() as full:
        full.setattr("dragoman.bulk.journal.write_all", once)
        with pytest.raises(OSError, match="No space left on device"):
            Bulk().run(source, target)
    asked = list[str]()

    def counted(texts: list[str]) -> list[str]:
        asked.extend(texts)
        return capitals(texts)

    heard = Bulk(translate=counted).run(source, target)
    assert (heard.before, sorted(asked)) == (8, sorted(TEXTS[8:]))
    assert target.read_text() == "".join(f"{text.upper()}\n" for text in TEXTS)


def test_a_disk_that_is_full_before_a_row_is_done_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of other options may begin: half a line of the journal is no row."""
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    write(source)

    def half(descriptor: int, data: bytes) -> None:
        write_all(descriptor, data[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("dragoman.bulk.journal.write_all", half)
        with pytest.raises(OSError, match="No space left on device"):
            Bulk(asked={"num_beams": 1}).run(source, target)
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert Bulk(asked={"num_beams": 4}).run(source, target).before == 0


def test_a_memory_that_has_no_room_ends_the_run_and_says_how_it_goes_on(tmp_path: Path) -> None:
    source, target, file = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "memory"
    texts = [f"{text} {'long ' * 400}".strip() for text in TEXTS]
    source.write_text("".join(f"{text}\n" for text in texts))
    with open_memory(file, ["0" * 64], {}) as memory:
        _limit(memory, pages=12)
        told = "memory: database or disk is full; the run goes on with the same command, or without --memory"
        with pytest.raises(BulkError, match=told):
            Bulk(memory=memory).run(source, target)
    heard = Bulk().run(source, target)
    assert 0 < heard.before < len(texts)
    assert target.read_text() == "".join(f"{text.upper()}\n" for text in texts)


def _limit(memory: Any, pages: int) -> None:
    """SQLite says of a database that may not grow what it says where the disk is full."""
    assert isinstance(memory, SqliteMemory)
    database: sqlite3.Connection = memory._database
    database.execute(f"PRAGMA max_page_count = {pages}")
