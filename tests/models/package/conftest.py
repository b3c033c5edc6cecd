"""A package that a test may change."""

import shutil
from pathlib import Path

import pytest

from models.package.folder import Package


@pytest.fixture
def copy(tiny_package: Package, tmp_path: Path) -> Path:
    """A package of one's own."""
    folder = tmp_path / "copy"
    shutil.copytree(tiny_package.folder, folder)
    return folder
