"""Many files in one run."""

import resource
from pathlib import Path

import pytest

from dragoman.bulk import windows
from dragoman.bulk.errors import BulkError
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
