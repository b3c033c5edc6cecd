"""The bounds of instructions, which a change that slows a step down exceeds."""

import json
from pathlib import Path

import pytest

from bench.instructions import __main__ as instructions
from bench.instructions.__main__ import BOUNDS, bounds, count, main, python, update
from bench.instructions.kernels import NotCounted, count_kernels, machine


def test_kernels_take_no_more_instructions_than_they_may() -> None:
    try:
        most, counted = bounds(machine()), count_kernels()
    except NotCounted as reason:
        pytest.skip(str(reason))
    assert counted.keys() == most.keys()
    assert {name: value for name, value in counted.items() if value > most[name]} == {}
    looked, listed = (counted[f"avx2, best tokens of {of}, rows 32"] for of in ("8,000", "1,000 allowed"))
    assert listed < looked


@pytest.mark.timeout(600)
def test_a_step_takes_no_more_instructions_than_it_may() -> None:
    try:
        most, counted = bounds(python()), count()
    except NotCounted as reason:
        pytest.skip(str(reason))
    assert counted.keys() == most.keys()
    assert {name: value for name, value in counted.items() if value > most[name]} == {}
    assert 1000 < counted["engine, beams 1, sentences 32"] < 2 * counted["engine, beams 1, sentences 1"]
    assert counted["engine, beams 4, sentences 32"] < 2 * counted["engine, beams 4, sentences 1"]
    together = "engine, beams 1, sentences 1, 8 steps a turn"
    assert counted[f"{together}, made again"] < counted[together] / 2, "Python has no part in most of them"


def nothing_counted() -> dict[str, int]:
    raise NotCounted("there is no valgrind to count instructions with")


def test_what_exceeds_its_bound_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(instructions, "BOUNDS", tmp_path / "bounds.json")
    monkeypatch.setattr(instructions, "count_kernels", nothing_counted)
    update(python(), {"engine, beams 1, sentences 1": 1000})
    monkeypatch.setattr("sys.argv", ["instructions"])
    results = {}
    for counted in (1150, 1151):
        monkeypatch.setattr(instructions, "count", lambda counted=counted: {"engine, beams 1, sentences 1": counted})
        results[counted] = main(), capsys.readouterr().out.count("**short**")
    assert results == {1150: (0, 0), 1151: (1, 1)}


def test_another_python_has_no_bounds_and_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(instructions, "BOUNDS", tmp_path / "bounds.json")
    (tmp_path / "bounds.json").write_text(json.dumps({"CPython 2.7 vax": {}}))
    monkeypatch.setattr(instructions, "count", dict)
    monkeypatch.setattr(instructions, "count_kernels", nothing_counted)
    monkeypatch.setattr("sys.argv", ["instructions"])
    assert main() == 0
    assert f"skipped: there are no bounds for {python()}; there are for CPython 2.7 vax" in capsys.readouterr().out
    assert BOUNDS.exists()
