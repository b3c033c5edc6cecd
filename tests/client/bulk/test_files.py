"""Many files in one run."""

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.bulk import windows
from dragoman.bulk.errors import BulkError, WrongUsage
from tests.client.bulk.running import Bulk, capitals


def texts(target: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(target.iterdir())}


def test_small_files_are_translated_together_the_longest_texts_first(tmp_path: Path) -> None:
    asked = list[list[str]]()

    def heard(batch: list[str]) -> list[str]:
        asked.append(batch)
        return capitals(batch)

    source = tmp_path / "in"
    source.mkdir()
    for number in range(100):
        (source / f"{number:03}.txt").write_text(f"{'a' * (number + 1)}\n{'b' * (number + 1)}\n")
    (source / "empty.txt").touch()
    Bulk(translate=heard).run(source, tmp_path / "out")
    assert [len(batch) for batch in sorted(asked, key=len)] == [200 - windows.BATCH, windows.BATCH]
    assert [len(text) for batch in sorted(asked, key=len, reverse=True) for text in batch] == sorted(
        [*range(1, 101), *range(1, 101)], reverse=True
    )
    assert texts(tmp_path / "out") == {name: text.upper() for name, text in texts(source).items()}


def test_as_many_files_as_there_are_need_few_that_are_open(tmp_path: Path) -> None:
    """More than a process may have, each with one row."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    source = tmp_path / "in"
    source.mkdir()
    for number in range(300):
        (source / f"{number:04}.txt").write_text(f"text {number}\n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, len(list(Path("/proc/self/fd").iterdir())) + 40), hard))
    try:
        Bulk().run(source, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert texts(tmp_path / "out") == {f"{number:04}.txt": f"TEXT {number}\n" for number in range(300)}


def test_what_stands_before_a_file_that_cannot_be_read_is_done(tmp_path: Path) -> None:
    """It was read ahead, and the files before it are in their places; the same run goes on when it is mended."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "a.txt").write_text("a\n")
    (source / "b.csv").write_text('text\none\n"two\n')
    (source / "c.txt").write_text("c\n")
    with pytest.raises(BulkError, match=r"b\.csv"):
        Bulk().run(source, target)
    assert texts(target) == {"a.txt": "A\n"}
    assert not (tmp_path / "out.unfinished" / "2.rows").exists()


def test_what_is_behind_links_is_translated_too(tmp_path: Path) -> None:
    source, other = tmp_path / "in", tmp_path / "other"
    for folder in (source, other):
        folder.mkdir()
    (other / "a.txt").write_text("a\n")
    (source / "folder").symlink_to("../other")
    (source / "file.txt").symlink_to("../other/a.txt")
    Bulk().run(source, tmp_path / "out")
    assert (tmp_path / "out" / "folder" / "a.txt").read_text() == "A\n"
    assert (tmp_path / "out" / "file.txt").read_text() == "A\n"


def loop(source: Path) -> None:
    (source / "up").symlink_to("..")


def back(source: Path) -> None:
    """A link to where the target is, which has something already."""
    (source.parent / "out").mkdir()
    (source.parent / "out" / "b.txt").touch()
    (source / "back").symlink_to("../out")


def pipe(source: Path) -> None:
    os.mkfifo(source / "pipe.txt")


def nothing(source: Path) -> None:
    (source / "nothing.txt").symlink_to("nowhere")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (loop, "up is a link to a folder that it is in"),
        (back, r"b\.txt is inside of .*out"),
        (pipe, r"pipe\.txt is no file and no folder"),
        (nothing, r"nothing\.txt is no file and no folder"),
    ],
)
def test_a_folder_with_what_cannot_be_read_is_not_begun(make: Callable[[Path], None], why: str, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.txt").write_text("a\n")
    make(source)
    with pytest.raises(WrongUsage, match=why):
        Bulk().run(source, tmp_path / "out")


def test_a_folder_that_may_not_be_read_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in"
    (source / "closed").mkdir(parents=True)
    (source / "a.txt").write_text("a\n")
    opened = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError):
        Bulk().run(source, tmp_path / "out")


@pytest.mark.parametrize("target", ["", ".", "/"])
def test_a_folder_that_is_there_is_no_name_for_what_is_made(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a\n")
    with pytest.raises(WrongUsage, match=r"is a folder that exists already: say what becomes of a\.txt there"):
        Bulk().run(Path("a.txt"), Path(target))


def test_a_name_that_arrow_cannot_open(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.parquet")).touch()
    with pytest.raises(WrongUsage, match=r"\.parquet' is no UTF-8, and Arrow opens no file of such a name"):
        Bulk().run(tmp_path / os.fsdecode(b"\xff.parquet"), tmp_path / "b.parquet")
