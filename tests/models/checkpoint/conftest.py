"""A checkpoint that may be changed."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """One's own copy of the tiny checkpoint."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "tiny"))
