"""The results in bench/results: the JSON holds what the tables are made of, and no reading beside it."""

from pathlib import Path

import pytest

from bench.cpu.engine import CELLS, Result
from bench.cpu.report import RESULTS, Report
from bench.cpu.service import Concurrency, Footprint, Latency, Percentiles

MOST_LINES = 150


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_the_tables_come_out_of_the_json(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert Report.model_validate_json(text).markdown() == file.with_suffix(".md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES


def test_every_table_has_its_json() -> None:
    tables = {file.stem for file in RESULTS.glob("*.md")}
    assert tables == {file.stem for file in RESULTS.glob("*.json")} != set()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """However many calls were made: of them the file holds how many there were, and their percentiles."""
    ours, theirs = ([factor * call for call in range(1, 10_001)] for factor in (1e-5, 2e-5))
    report = Report(
        repeats=3,
        engine=[Result(cell, ours=300.0, theirs=200.0) for cell in CELLS],
        concurrency=Concurrency(calls=30.0, engine=31.0, offline=29.0),
        latency=Latency(44.4, Percentiles.of(ours), Percentiles.of(theirs)),
        footprint=Footprint(start_s=0.5, rss_mb=300.0, peak_rss_mb=400.0),
    )
    table = report.write(tmp_path)
    written = table.with_suffix(".json").read_text(encoding="utf-8")
    assert Report.model_validate_json(written) == report
    assert "| p50 | 50 | 100 | 0.50 | 0.50 | met |" in table.read_text(encoding="utf-8")
    assert "| p99 | 99 | 198 | 0.50 | 0.67 | met |" in table.read_text(encoding="utf-8")
    assert len(written.splitlines()) <= MOST_LINES
