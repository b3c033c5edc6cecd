"""Temporary folders of merged models."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from models.checkpoint.files.scratch import PREFIX, scratch
from tests.checkpoints import ROOT

KILLED = """
import os, signal
from models.checkpoint.files.scratch import scratch
with scratch() as folder:
    (folder / "model.safetensors").write_bytes(b"weights")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are, here and in processes of these tests."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_run_left_that_was_killed_goes_with_the_next(place: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, check=False, timeout=120)
    [left] = place.iterdir()
    assert (left / "model.safetensors").exists()
    with scratch() as folder:
        assert [*place.iterdir()] == [folder] != [left]
    assert [*place.iterdir()] == []


def test_what_another_run_works_in_stays_and_what_is_no_run_s(place: Path) -> None:
    new, other = place / f"{PREFIX}new", place / "mine"
    for folder in (new, other):
        folder.mkdir()
    (other / "file").touch()
    (place / f"{PREFIX}link").symlink_to(other)
    with scratch() as first:
        (first / "weights").touch()
        with scratch():
            assert (first / "weights").exists()
    assert new.exists() and (other / "file").exists()
