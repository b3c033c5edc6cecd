"""A run that is killed between two of the last steps."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from dragoman.bulk import unfinished
from dragoman.bulk.errors import BulkError, WrongUsage
from dragoman.bulk.formats.text import Text
from dragoman.bulk.unfinished import Unfinished
from tests.client.bulk.running import REFUSED, Bulk, capitals


class Killed(BaseException):
    """What a process does not catch."""


def killed(*_: object, **__: object) -> None:
    raise Killed


def nobody(texts: list[str]) -> list[str]:
    raise AssertionError(texts)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_killed_while_its_folder_is_deleted_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("a\n")

    def half(folder: Path, **_: object) -> None:
        if folder.exists():
            (folder / "0.done").unlink()
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", half)
        with pytest.raises(Killed):
            Bulk().run(source, target)
    with pytest.raises(WrongUsage, match=r"b\.txt exists already"):
        Bulk(translate=nobody).run(source, target)
    assert names(tmp_path) == ["a.txt", "b.txt"]


def test_killed_between_its_name_and_the_note_of_it_a_file_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "a.txt").write_text("a\n")
    (source / "b.txt").write_text("b\n")
    with monkeypatch.context() as patched:
        patched.setattr(Unfinished, "_mark", killed)
        with pytest.raises(Killed):
            Bulk().run(source, target)
    assert names(target) == ["a.txt"]
    assert "0.rows" in names(tmp_path / "out.unfinished")
    heard = Bulk().run(source, target)
    assert heard.rows == 1  # of the other file
    assert [(target / name).read_text() for name in names(target)] == ["A\n", "B\n"]


def test_what_was_refused_before_it_was_killed_is_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all files, also of those that another run has put in their places: the exit code says whether all is there."""
    source, target, put_in_place = tmp_path / "in", tmp_path / "out", Unfinished.put_in_place
    source.mkdir()
    (source / "a.txt").write_text(f"a\n{REFUSED}\n{REFUSED} again\n")
    (source / "b.txt").write_text(f"b\n{REFUSED} too\n")

    def the_first(self: Unfinished, number: int, *rest: Any) -> None:
        if number:
            raise Killed
        put_in_place(self, number, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Unfinished, "put_in_place", the_first)
        with pytest.raises(Killed):
            Bulk(keep_going=True).run(source, target)
    assert names(target) == ["a.txt"]
    assert Bulk(keep_going=True, translate=nobody).run(source, target).without == 3


def test_a_run_that_waited_at_a_folder_that_was_moved_away_does_not_begin(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("wb") as opened:
        assert unfinished._is_at(lock, opened.fileno())
        lock.rename(tmp_path / "moved")
        assert not unfinished._is_at(lock, opened.fileno())
        lock.touch()
        assert not unfinished._is_at(lock, opened.fileno())


def test_killed_before_its_first_row_it_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("a\n")

    def translate(texts: list[str]) -> list[str]:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Unfinished, "end", lambda _: None)
        Bulk(translate=translate, asked={"num_beams": 99}).run(source, target)
    assert "job.json" in names(tmp_path / "b.txt.unfinished")
    assert Bulk(asked={"num_beams": 4}).run(source, target).rows == 1
    assert names(tmp_path) == ["a.txt", "b.txt"]


@pytest.mark.parametrize("data", [None, b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_without_what_was_asked_for_nothing_is_gone_on_with(data: bytes | None, tmp_path: Path) -> None:
    """What is done may be of other options."""
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text(f"a\n{REFUSED}\n")
    with pytest.raises(BulkError, match="1 rows are kept"):
        Bulk().run(source, target)
    asked = tmp_path / "b.txt.unfinished" / "job.json"
    asked.unlink()
    if data is not None:
        asked.write_bytes(data)
    with pytest.raises(BulkError, match=r"job\.json is missing or damaged, .*: delete .*unfinished to begin anew"):
        Bulk(keep_going=True).run(source, target)


def test_a_file_that_has_changed_is_named_so_that_it_can_be_put_back(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for name in "abc":
        (source / f"{name}.txt").write_text(f"{name}\n")
    (source / "d.txt").write_text(f"d\n{REFUSED}\n")
    with pytest.raises(BulkError, match="1 rows are kept"):
        Bulk().run(source, target)
    (source / "new.txt").touch()
    with pytest.raises(BulkError, match=r"such as .*in/new\.txt\. Put them back as they were to go on"):
        Bulk(keep_going=True).run(source, target)
    (source / "new.txt").unlink()
    (source / "b.txt").rename(tmp_path / "b.txt")
    with pytest.raises(BulkError, match=r"such as .*in/b\.txt\. Put them back as they were to go on"):
        Bulk(keep_going=True).run(source, target)
    (tmp_path / "b.txt").rename(source / "b.txt")
    assert Bulk(keep_going=True).run(source, target).without == 1


@pytest.mark.parametrize("rows", [b"b\na\n", b"a\nb\nc\n", b"a\n"])
def test_a_file_that_changes_while_it_is_translated_gets_no_translations_of_other_texts(
    rows: bytes, tmp_path: Path
) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("a\nb\n")

    def translate(texts: list[str]) -> list[str]:
        source.write_bytes(rows)
        return capitals(texts)

    with pytest.raises(BulkError, match=r"a\.txt has changed while .*: delete .*b\.txt\.unfinished to begin anew"):
        Bulk(translate=translate).run(source, target)
    assert not target.exists()


def test_a_file_that_cannot_be_written_has_not_changed_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of Arrow, which others' formats bring, are of the same kind as rows that are not as many as before."""

    def write(*_: object) -> None:
        raise ValueError("it takes no such values")

    (tmp_path / "a.txt").write_text("a\n")
    with monkeypatch.context() as patched:
        patched.setattr(Text, "write", write)
        with pytest.raises(
            BulkError, match=r"b\.txt cannot be written: it takes no such values; what is translated is"
        ):
            Bulk().run(tmp_path / "a.txt", tmp_path / "b.txt")
    Bulk(translate=nobody).run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text() == "A\n"
