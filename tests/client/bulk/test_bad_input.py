"""What is wrong with rows, files and places is told, and what is done stays."""

import errno
import fcntl
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.bulk import memory
from dragoman.bulk.errors import BulkError, WrongUsage
from dragoman.bulk.formats.lines import MOST_BYTES
from dragoman.bulk.memory import open_memory
from dragoman.command.bulk import main
from dragoman.errors import Unavailable
from tests.client.bulk.running import REFUSED, Bulk
from tests.server_process import ROOT

UNREADABLE = {
    "text of two encodings": (".txt", "a\ncaf\u00e9 ".encode() + b"caf\xe9\nc\n", "line 2 byte 10 (0xe9) is not UTF-8"),
    "text in UTF-16": (".txt", b"a\n" + "b".encode("utf-16-le") + b"\nc\n", "line 2 byte 2 (0x00) is in no text; if"),
    "a text that is refused": (".txt", f"a\n{REFUSED}\nc\n".encode(), "line 2 is refused: contents[0] is too long"),
    "no JSON": (
        ".jsonl",
        b'{"text": "a"}\n{"text": "b"\n{"text": "c"}\n',
        "line 2 is no JSON: Expecting ',' delimiter",
    ),
    "no object": (".jsonl", b'{"text": "a"}\n["b"]\n{"text": "c"}\n', "line 2 is no JSON object"),
    "no such key": (
        ".jsonl",
        b'{"text": "a"}\n{"txt": "b"}\n{"text": "c"}\n',
        "line 2 has no key 'text': name",
    ),
    "no text": (
        ".jsonl",
        b'{"text": "a"}\n{"text": 7}\n{"text": "c"}\n',
        "line 2 has no text in 'text', but a number",
    ),
    "an answer": (
        ".jsonl",
        b'{"text": "a"}\n{"text": true}\n{"text": "c"}\n',
        "line 2 has no text in 'text', but true or false",
    ),
    "a list": (
        ".jsonl",
        b'{"text": "a"}\n{"text": ["b"]}\n{"text": "c"}\n',
        "line 2 has no text in 'text', but a list",
    ),
    "an object": (
        ".jsonl",
        b'{"text": "a"}\n{"text": {}}\n{"text": "c"}\n',
        "line 2 has no text in 'text', but an object",
    ),
    "half a character": (
        ".jsonl",
        b'{"text": "a"}\n{"text": "\\ud800"}\n{"text": "c"}\n',
        "line 2 has half a",
    ),
    "the new key is there": (
        ".jsonl",
        b'{"text": "a"}\n{"text": "b", "translation": "x"}\n{"text": "c"}\n',
        "line 2 has a key 'translation' already: name another one by --into",
    ),
    "JSON of two encodings": (".jsonl", b'{"text": "a"}\n{"text": "\xe9"}\n{"text": "c"}\n', "line 2 byte 11 (0xe9)"),
    "a table of two encodings": (".csv", b"n,text\n1,a\n\xe9,b\n3,c\n", "line 3 byte 1 (0xe9) is not UTF-8"),
    "a table with zeros": (".csv", b"n,text\n1,a\n2,\0b\n3,c\n", "line 3 byte 3 (0x00) is in no text; if the file"),
    "a row too short": (".csv", b"n,text\n1,a\nb\n3,c\n", "line 3 has 1 values; the row of names has 2"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_row_that_cannot_be_translated(name: str, tmp_path: Path) -> None:
    """Ends the run; the same run may be gone on with, and passes over it then."""
    suffix, data, why = UNREADABLE[name]
    source, target = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    source.write_bytes(data)
    with pytest.raises(BulkError) as caught:
        Bulk().run(source, target)
    assert str(caught.value).startswith(f"{source}: {why}")
    assert "1 rows are kept; the same command with --keep-going passes over it" in str(caught.value)
    assert not target.exists()
    heard = Bulk(keep_going=True).run(source, target)
    assert heard.before == 1
    assert [place.startswith(f"{source}: {why}") for place in heard.refused] == [True]
    lines = target.read_bytes().splitlines()
    assert len(lines) == len(data.splitlines())
    first, passed, last = lines[-3:]
    kept = data.splitlines()[-2]
    assert (b"A" in first, b"C" in last) == (True, True)
    assert passed in (b"", kept, kept + b",", kept[:-1] + b', "translation": null}')


WRONG: dict[str, tuple[Callable[[Path], object], Callable[[Path], Path], str]] = {
    "no column": (
        lambda p: (p / "a.csv").write_text("n,txt\n1,a\n"),
        lambda p: p / "b.csv",
        "has n, txt, and not one",
    ),
    "the column is there": (
        lambda p: (p / "a.csv").write_text("text,translation\na,b\n"),
        lambda p: p / "b.csv",
        "name another new column by --into",
    ),
    "semicolons": (
        lambda p: (p / "a.csv").write_text("n;text\n1;a\n"),
        lambda p: p / "b.csv",
        "a.csv has n;text, and not one 'text': its values seem to stand between semicolons; save it with commas",
    ),
    "tabs": (
        lambda p: (p / "a.csv").write_text("n\ttext\n1\ta\n"),
        lambda p: p / "b.csv",
        "and not one 'text': its values seem to stand between tabs, which --format tsv reads",
    ),
    "no header": (lambda p: (p / "a.csv").touch(), lambda p: p / "b.csv", "a.csv has no row of names"),
    "names that are no UTF-8": (
        lambda p: (p / "a.csv").write_bytes("n,text\n1,a\n".encode("utf-16")),
        lambda p: p / "b.csv",
        "line 1 byte 4 (0x00) is in no text; if the file is UTF-16",
    ),
    "unknown format": (lambda p: (p / "a.doc").touch(), lambda p: p / "b.doc", "a.doc is of no known format (.txt, "),
    "packed": (
        lambda p: (p / "a.GZ").touch(),
        lambda p: p / "b.jsonl",
        "wrote): it is packed, so unpack it first",
    ),
    "it is there": (
        lambda p: [(p / n).write_text("") for n in ("a.txt", "b.txt")],
        lambda p: p / "b.txt",
        "b.txt exists already",
    ),
    "onto itself": (lambda p: (p / "a.txt").touch(), lambda p: p / "a.txt", "would be read too"),
    "no folder": (lambda p: (p / "a.txt").touch(), lambda p: p / "none" / "b.txt", "none is no folder: make it first"),
    "a folder that takes no folders": (
        lambda p: (p / "a.txt").touch(),
        lambda p: Path("/proc/b.txt"),
        "/proc/b.txt.unfinished cannot be a folder (No such file or directory): write to another place",
    ),
    "onto a folder": (
        lambda p: (p / "a.txt").touch(),
        lambda p: Path("/proc"),
        "/proc is a folder that exists already: say what becomes of",
    ),
    "the name of another format": (
        lambda p: (p / "a.csv").write_text("text\na\n"),
        lambda p: p / "b.PARQUET",
        "a.csv is csv and stays so: call it otherwise, or say --format csv",
    ),
    "standard output": (lambda p: (p / "a.txt").touch(), lambda p: Path("-"), "- is no file: files alone can be gone"),
    "nothing there": (lambda p: None, lambda p: p / "b.txt", "is not there"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_done_does_not_begin(name: str, tmp_path: Path) -> None:
    prepare, target, why = WRONG[name]
    prepare(tmp_path)
    source = next((path for path in sorted(tmp_path.iterdir()) if path.stem == "a"), tmp_path / "a.txt")
    with pytest.raises(WrongUsage) as caught:
        Bulk().run(source, target(tmp_path))
    assert why in str(caught.value)
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_target_inside_of_its_source_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.txt").write_text("a\n")
    for target in (source / "out", source, tmp_path):
        with pytest.raises(WrongUsage, match=r"is inside of .*: write to another place|would be read too"):
            Bulk().run(source, target)
    (source / "picture.png").touch()
    with pytest.raises(WrongUsage, match=r"picture\.png is of no known format"):
        Bulk().run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_table_with_open_quotes_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\na\n"b\n')
    with pytest.raises(BulkError, match=r"a\.csv: line 3: the row cannot be read \(unexpected end of data\): in"):
        Bulk(keep_going=True).run(tmp_path / "a.csv", tmp_path / "b.csv")


def test_a_file_without_lines_does_not_fill_the_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(MOST_BYTES + 2)
    with pytest.raises(BulkError, match=f"line 1 has over {MOST_BYTES} bytes"):
        Bulk(keep_going=True).run(tmp_path / "a.txt", tmp_path / "b.txt")


def test_arrow_files_that_are_none(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    source.write_bytes(b"PAR1 not at all PAR1")
    with pytest.raises(BulkError, match=r"a\.parquet is no Parquet file"):
        Bulk().run(source, target)
    parquet.write_table(pa.table({"text": [1, 2]}), source)
    with pytest.raises(WrongUsage, match="column 'text' has int64, and no texts"):
        Bulk().run(source, target)
    with pytest.raises(WrongUsage, match="has text, and not one 'words'"):
        Bulk(column="words").run(source, target)
    source.write_bytes(b"PAR1" + b"\xff" * 99 + b"\x63\0\0\0PAR1")
    with pytest.raises(BulkError, match=r"a\.parquet is no Parquet file"):
        Bulk().run(source, target)
    bad = pa.array([b"good", b"caf\xe9"], pa.binary()).view(pa.string())
    parquet.write_table(pa.table({"text": bad}), source)
    heard = Bulk(keep_going=True).run(source, target)
    assert heard.refused == [f"{source}: row 2 byte 4 of the text is not UTF-8"]
    assert parquet.read_table(target)["translation"].to_pylist() == ["GOOD", None]
    (tmp_path / "set").mkdir()
    for name in ("state.json", "dataset_info.json"):
        (tmp_path / "set" / name).write_text("{}")
    with pytest.raises(BulkError, match="set is no dataset that can be read"):
        Bulk().run(tmp_path / "set", tmp_path / "made")


def test_what_others_need_is_not_asked_of_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(WrongUsage, match=r"pyarrow is not installed, .*: pip install '\.\[bulk\]'"):
        Bulk().run(tmp_path / "a.parquet", tmp_path / "b.parquet")


def test_another_run_does_not_go_on_with_what_is_there(tmp_path: Path) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text(f"a\n{REFUSED}\n")
    with pytest.raises(BulkError):
        Bulk(asked={"to": "pt"}).run(source, target)
    with pytest.raises(BulkError, match="part of another run: to was pt, and is de"):
        Bulk(asked={"to": "de"}).run(source, target)
    with pytest.raises(BulkError, match="part of another run: into was translation, and is x"):
        Bulk(asked={"to": "pt"}, into="x").run(source, target)
    source.write_text("other\ntexts\n")
    with pytest.raises(BulkError, match="part of another run: its files have changed"):
        Bulk(asked={"to": "pt"}).run(source, target)


def test_a_run_that_has_done_nothing_is_in_nobodys_way(tmp_path: Path) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text(f"{REFUSED}\na\n")
    with pytest.raises(BulkError, match="0 rows are kept"):
        Bulk(asked={"num_beams": 99}).run(source, target)
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]
    Bulk(asked={"num_beams": 4}, keep_going=True).run(source, target)
    assert target.read_text() == "\nA\n"


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as NFS without its lock daemon."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / "a.txt").write_text("a\n")
    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(WrongUsage, match=r"b\.txt\.unfinished cannot be locked \(No locks available\), and a lock"):
        Bulk().run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    monkeypatch.undo()
    assert Bulk().run(tmp_path / "a.txt", tmp_path / "b.txt").rows == 1


def test_a_target_of_somebody_else_is_not_taken_for_ours(tmp_path: Path) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text(f"a\n{REFUSED}\n")
    with pytest.raises(BulkError):
        Bulk().run(source, target)
    target.write_text("precious")
    with pytest.raises(BulkError, match="is there, and not by this run, which has 1 rows of it"):
        Bulk(keep_going=True).run(source, target)
    assert target.read_text() == "precious"


def test_nor_is_one_that_came_into_a_folder_before_its_turn(tmp_path: Path) -> None:
    """What was done may have been taken away meanwhile: it is not done again."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for name, text in (("a.txt", "a\n"), ("b.txt", f"{REFUSED}\n"), ("c.txt", "c\n")):
        (source / name).write_text(text)
    with pytest.raises(BulkError):
        Bulk().run(source, target)
    (target / "a.txt").unlink()
    (target / "c.txt").write_text("precious")
    with pytest.raises(BulkError, match=r"c\.txt is there, and not by this run, which has 0 rows of it"):
        Bulk(keep_going=True).run(source, target)
    assert (target / "c.txt").read_text() == "precious"
    (target / "c.txt").unlink()
    Bulk(keep_going=True).run(source, target)
    assert {file.name: file.read_text() for file in target.iterdir()} == {"b.txt": "\n", "c.txt": "C\n"}


def test_a_server_that_stops_is_not_taken_for_a_text_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\n")

    def stopped(texts: list[str]) -> list[str]:
        raise Unavailable("the engine has failed")

    with pytest.raises(Unavailable):
        Bulk(keep_going=True, translate=stopped).run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert Bulk().run(tmp_path / "a.txt", tmp_path / "b.txt").rows == 2


def test_a_memory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, but long enough to be looked at as if it were one\n" * 40)
    with sqlite3.connect(tmp_path / "other") as database:
        database.execute("CREATE TABLE precious (x)")
    database.close()
    for name, why in (("text", "file is not a database"), ("other", "is a database of something else")):
        with pytest.raises(WrongUsage, match=why), open_memory(tmp_path / name, ["1"], {}):
            pass
    with pytest.raises(WrongUsage, match="cannot be a memory"), open_memory(tmp_path, ["1"], {}):
        pass


def test_a_memory_is_none_of_the_files_that_are_translated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same run would find it among them when it goes on."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "a.txt").write_text("\n")
    more = ["--package", str(ROOT / "models" / "zoo" / "en-pt-int8")]
    file = source / "corpus.memory"
    assert main([str(source), str(target), "--memory", str(file), *more]) == 2
    told = f"{file} is in {source}, whose files are translated: give the memory another place"
    assert capsys.readouterr().err == f"dragoman: {told}\n"
    hidden = source / ".memory"
    assert [main([str(source), str(tmp_path / name), "--memory", str(hidden), *more]) for name in "12"] == [0, 0]
    assert sorted(file.name for file in source.iterdir()) == [".memory", "a.txt"]


@pytest.mark.parametrize("memory", ["b.txt", "b.txt/memory", "a.txt"])
def test_a_memory_in_the_place_of_a_text_or_a_translation_is_refused_before_it_is_made(
    memory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, file = (str(tmp_path / name) for name in ("a.txt", "b.txt", memory))
    Path(source).touch()
    assert main([source, target, "--memory", file, "--package", str(tmp_path / "nowhere")]) == 2
    told = f"{file} is {target}, in it, or a text to translate: give the memory another file"
    assert capsys.readouterr().err == f"dragoman: {told}\n"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"] and not (tmp_path / "a.txt").stat().st_size


def test_a_memory_is_made_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, or the power gone, when the first of its tables is made."""
    file = tmp_path / "memory"
    with monkeypatch.context() as failing:
        failing.setattr(memory, "SCHEMA", memory.SCHEMA.replace("CREATE TABLE IF NOT EXISTS translations", "no room"))
        with pytest.raises(WrongUsage, match="cannot be a memory"), open_memory(file, ["1"], {}):
            pass
    with open_memory(file, ["1"], {}) as made:
        made.keep({"a": "A"})
        assert made.find(["a"]) == {"a": "A"}


def test_a_memory_knows_texts_of_the_same_packages_and_options(tmp_path: Path) -> None:
    file, options = tmp_path / "memory", {"target_language": "pt", "num_beams": 4}
    (tmp_path / "a.txt").write_text("a\nb\na\n")
    with open_memory(file, ["1"], options) as known:
        Bulk(memory=known).run(tmp_path / "a.txt", tmp_path / "b.txt")

    def nobody(texts: list[str]) -> list[str]:
        raise AssertionError(texts)

    with open_memory(file, ["1"], dict(reversed(options.items()))) as known:
        Bulk(memory=known, translate=nobody).run(tmp_path / "a.txt", tmp_path / "c.txt")
    assert (tmp_path / "c.txt").read_text() == "A\nB\nA\n"
    for packages, others in ((["2"], options), (["1"], options | {"num_beams": 1})):
        with open_memory(file, packages, others) as known:
            assert known.find(["a", "b"]) == {}


def test_what_others_put_into_a_memory_that_is_no_text_is_translated_anew(tmp_path: Path) -> None:
    file = tmp_path / "memory"
    (tmp_path / "a.txt").write_text("a\nb\nc\nd\n")
    with open_memory(file, ["1"], {}) as known:
        Bulk(memory=known).run(tmp_path / "a.txt", tmp_path / "b.txt")
    with sqlite3.connect(file) as database:
        for value, text in ((None, "a"), (b"x", "b")):
            database.execute("UPDATE translations SET target = ? WHERE source = ?", (value, text))
        database.execute("UPDATE translations SET target = 'another' WHERE source = 'c'")
    database.close()
    for target in ("c.txt", "d.txt"):
        with open_memory(file, ["1"], {}) as known:
            Bulk(memory=known).run(tmp_path / "a.txt", tmp_path / target)
        assert (tmp_path / target).read_text() == "A\nB\nanother\nD\n"
    with open_memory(file, ["1"], {}) as known:
        assert known.find("abcd") == {"a": "A", "b": "B", "c": "another", "d": "D"}


def test_every_name_of_a_memory_is_one_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_memory(Path(":memory:"), ["1"], {}) as known:
        known.keep({"a": "A"})
    with open_memory(Path(":memory:"), ["1"], {}) as known:
        assert known.find(["a"]) == {"a": "A"}
