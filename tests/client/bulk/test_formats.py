"""What becomes of files of every format, read again by those who made the formats."""

import csv
import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from dragoman.bulk.windows import ROWS
from tests.client.bulk.running import Bulk


def test_text_keeps_its_lines_byte_for_byte(tmp_path: Path) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_bytes("\ufeffolá\r\n\r\n  \t\na\rb\nça va\n\n\x85 x\nlast".encode())
    heard = Bulk().run(source, target)
    assert target.read_bytes() == "\ufeffOLÁ\r\n\r\n  \t\nA B\nÇA VA\n\n\x85 X\nLAST".encode()
    assert (heard.rows, heard.share) == (8, 1.0)


def test_many_lines_come_in_their_order(tmp_path: Path) -> None:
    """Of several windows, and of very different lengths."""
    lines = [f"{number} {'word ' * (number * 7919 % 23)}" for number in range(3 * ROWS + 17)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Bulk().run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text(encoding="utf-8") == "\n".join(lines).upper() + "\n"


def test_an_empty_file_becomes_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    Bulk().run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_bytes() == b""


def test_objects_get_one_more_key_and_keep_every_byte(tmp_path: Path) -> None:
    source, target = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    source.write_bytes(
        b'{"id": 1e5,  "text":"ol\\u00e1 }", "n": {"text": 1}  }\r\n\n{"text": null}\n'
        b'{"text": " ", "x": 1.10}\n{"text": "a\\n\\"b"}'
    )
    Bulk(into="pt").run(source, target)
    assert (
        target.read_bytes()
        == (
            '{"id": 1e5,  "text":"ol\\u00e1 }", "n": {"text": 1}, "pt": "OLÁ }"}\r\n\n{"text": null, "pt": null}\n'
            '{"text": " ", "x": 1.10, "pt": " "}\n{"text": "a\\n\\"b", "pt": "A\\n\\"B"}'
        ).encode()
    )
    written = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines() if line]
    assert [row["pt"] for row in written] == ["OLÁ }", None, " ", 'A\n"B']


@pytest.mark.parametrize(("suffix", "mark"), [(".csv", ","), (".tsv", "\t")])
def test_tables_get_one_more_column_and_keep_every_byte(suffix: str, mark: str, tmp_path: Path) -> None:
    source, target = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    text = '\ufeffid,text,"n"\r\n1,"two\r\nlines, ""quoted""",01\r\n\r\n2,plain,"3"\r\n3,,x\r\n4, "odd",y'
    source.write_bytes(text.replace(",", mark).encode())
    Bulk().run(source, target)
    with target.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter=mark) if row]
    assert [row[:3] for row in rows] == [
        ["id", "text", "n"],
        ["1", f'two\r\nlines{mark} "quoted"', "01"],
        ["2", "plain", "3"],
        ["3", "", "x"],
        ["4", ' "odd"', "y"],
    ]
    assert [row[3] for row in rows] == ["translation", f'TWO\r\nLINES{mark} "QUOTED"', "PLAIN", "", ' "ODD"']
    added = [line for line in target.read_bytes().split(b"\r\n") if line.startswith((b"2", b"3"))]
    assert added == ['2,plain,"3",PLAIN'.replace(",", mark).encode(), b"3,,x,".replace(b",", mark.encode())]


def test_a_row_with_too_few_or_too_many_values_has_none_that_looks_like_its_translation(tmp_path: Path) -> None:
    """It is too short or too long by as many as it was."""
    source, target = tmp_path / "a.csv", tmp_path / "b.csv"
    source.write_text("n,text\n1,a\n2\n3,b,c\n4,d,,\n", encoding="utf-8")
    heard = Bulk(keep_going=True).run(source, target)
    assert len(heard.refused) == 3
    before, after = (
        list(csv.reader(io.StringIO(file.read_text(encoding="utf-8")), strict=True)) for file in (source, target)
    )
    assert after == [
        ["n", "text", "translation"],
        ["1", "a", "A"],
        ["2", ""],
        ["3", "b", "c", ""],
        ["4", "d", "", "", ""],
    ]
    assert [len(row) for row in after] == [len(row) + 1 for row in before]


def test_a_translation_with_line_breaks_is_one_value(tmp_path: Path) -> None:
    """Whatever else is in it: every line break is between quotes."""
    rows = ["a\nb", "a\rb", "a\r\nb", "\n"]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([row] for row in rows)])
    Bulk().run(tmp_path / "a.csv", tmp_path / "b.csv")
    with (tmp_path / "b.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["text", "translation"], *([row, row.upper()] for row in rows)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n"])
def test_a_row_ends_as_it_did(end: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(f'text{end}a{end}"b\n"{end}{end}""{end}c'.encode())
    Bulk().run(tmp_path / "a.csv", tmp_path / "b.csv")
    written = (tmp_path / "b.csv").read_bytes().decode()
    assert written == f'text,translation{end}a,A{end}"b\n","B\n"{end}{end}"",{end}c,C'
    rows = [row for row in csv.reader(io.StringIO(written, newline="")) if row]
    assert [row[1:] for row in rows] == [["translation"], ["A"], ["B\n"], [""], ["C"]]


def test_numbers_of_any_length_are_json(tmp_path: Path) -> None:
    line = '{"n": ' + "1" * 5000 + ', "text": "a"'
    (tmp_path / "a.jsonl").write_text(line + "}\n")
    Bulk().run(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert (tmp_path / "b.jsonl").read_text() == line + ', "translation": "A"}\n'


TABLE: dict[str, list[Any]] = {
    "n": list(range(10_000)),
    "text": [None if n % 97 == 0 else "" if n % 89 == 0 else f"text {n}" for n in range(10_000)],
    "list": [[n, n + 1] for n in range(10_000)],
}
EXPECTED = [text and text.upper() for text in TABLE["text"]]


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary"])
def test_parquet_gets_one_more_column(kind: str, tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table(TABLE, metadata={"made": "by a test"})
    of_text = pa.dictionary(pa.int32(), pa.string()) if kind == "dictionary" else getattr(pa, kind)()
    table = table.set_column(1, "text", table.column("text").cast(of_text))
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    parquet.write_table(table, source, row_group_size=3_000, compression="zstd")
    heard = Bulk(into="pt").run(source, target)
    found = parquet.read_table(target)
    assert found.column_names == ["n", "text", "list", "pt"]
    assert found.drop_columns("pt").equals(parquet.read_table(source))
    assert found["pt"].to_pylist() == EXPECTED
    assert found.schema.metadata[b"made"] == b"by a test"
    assert parquet.ParquetFile(target).metadata.row_group(0).column(0).compression == "ZSTD"
    assert (heard.rows, heard.share) == (10_000, 1.0)


@pytest.mark.parametrize(("year", "unit"), [(9999, "us"), (2020, "ns")])
def test_timestamps_of_96_bits_stay_the_times_that_they_are(year: int, unit: str, tmp_path: Path) -> None:
    """Spark writes them, and Arrow reads those after 2262 wrong, unless it is told."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    times: list[Any] = [[datetime(year, 12, 31, 1, 2, 3, 456789)], [datetime(1900, 1, 1), None], None]
    for kind, values in (
        (pa.timestamp("us"), [each and each[0] for each in times]),
        (pa.list_(pa.timestamp("us")), times),
    ):
        table = pa.table({"when": pa.array(values, kind), "text": ["a", "b", "c"]})
        source, target = tmp_path / f"{kind}.parquet", tmp_path / f"{kind}.b.parquet"
        parquet.write_table(table, source, use_deprecated_int96_timestamps=True)
        Bulk().run(source, target)
        found = parquet.read_table(target)
        assert found["when"].cast(kind).equals(table["when"])
        assert f"[{unit}]" in str(found["when"].type)


def test_a_column_is_told_from_one_that_is_in_another(tmp_path: Path) -> None:
    """Arrow has one name for both."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    parquet.write_table(pa.table({"a": [{"b": "no"}, {"b": "no"}], "a.b": ["x", "y"]}), source)
    Bulk(column="a.b").run(source, target)
    assert parquet.read_table(target)["translation"].to_pylist() == ["X", "Y"]


def test_a_dataset_keeps_the_format_in_which_it_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(TABLE).with_format("numpy", columns=["n", "text"]).save_to_disk(tmp_path / "a")
    Bulk(into="pt").run(tmp_path / "a", tmp_path / "b")
    kept = datasets.load_from_disk(tmp_path / "b").format
    assert (kept["type"], kept["columns"]) == ("numpy", ["n", "text", "pt"])


def test_a_dataset_without_rows_becomes_one(tmp_path: Path) -> None:
    """Such as a split of which a filter has left nothing."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"text": ["a"]}).filter(lambda row: False).save_to_disk(tmp_path / "a")
    Bulk().run(tmp_path / "a", tmp_path / "b")
    made = datasets.load_from_disk(tmp_path / "b")
    assert (made.column_names, len(made)) == (["text", "translation"], 0)


def test_a_column_of_nothing_but_nulls_has_no_texts_to_translate(tmp_path: Path) -> None:
    """Of one part of a table, as pandas writes it, which knows no type then."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"text": [None, None]}), tmp_path / "a.parquet")
    Bulk().run(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert parquet.read_table(tmp_path / "b.parquet").to_pydict() == {"text": [None] * 2, "translation": [None] * 2}


def test_datasets_get_one_more_column(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    whole = datasets.Dataset.from_dict(TABLE)
    splits = datasets.DatasetDict({"test": whole.select(range(9_000, 10_000)), "train": whole.select(range(5_000))})
    splits.save_to_disk(tmp_path / "both")
    Bulk(into="pt").run(tmp_path / "both", tmp_path / "made")
    found = datasets.load_from_disk(tmp_path / "made")
    assert found["test"]["pt"][:] == EXPECTED[9_000:]
    assert found["train"]["pt"][:] == EXPECTED[:5_000]
    assert found["train"].remove_columns("pt")[:] == splits["train"][:]
    Bulk(into="pt", format="dataset").run(tmp_path / "both", tmp_path / "again")
    assert files_of(tmp_path / "again") == files_of(tmp_path / "made")
    Bulk(into="pt").run(tmp_path / "both" / "test", tmp_path / "one")
    assert datasets.load_from_disk(tmp_path / "one")["pt"][:] == EXPECTED[9_000:]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_folder_becomes_one_with_the_same_files(tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "b.txt").write_text("b\n")
    (source / "deep" / "a.jsonl").write_text('{"text": "a"}\n')
    (source / "deep" / "er" / "c.CSV").write_text("text\nc\n")
    (source / ".hidden").write_text("left out")
    heard = Bulk().run(source, tmp_path / "out")
    assert files_of(tmp_path / "out") == {
        "b.txt": b"B\n",
        "deep/a.jsonl": b'{"text": "a", "translation": "A"}\n',
        "deep/er/c.CSV": b"text,translation\nc,C\n",
    }
    assert (heard.rows, heard.share) == (3, 1.0)


def test_equal_texts_are_translated_once(tmp_path: Path) -> None:
    asked = list[str]()

    def translate(texts: list[str]) -> list[str]:
        asked.extend(texts)
        return [text.upper() for text in texts]

    (tmp_path / "a.txt").write_text("b\na\nb\nbbb\na\n" * 100)
    Bulk(translate=translate).run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text() == "B\nA\nB\nBBB\nA\n" * 100
    assert sorted(asked) == ["a", "b", "bbb"]
    assert asked[0] == "bbb"  # the longest is the first


def test_a_format_may_be_said(tmp_path: Path) -> None:
    (tmp_path / "book.en").write_text("a\n")
    Bulk(format="text").run(tmp_path / "book.en", tmp_path / "book.pt")
    assert (tmp_path / "book.pt").read_text() == "A\n"
