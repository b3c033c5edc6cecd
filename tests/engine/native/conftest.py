"""The library, where one was built, and what several modules look at."""

import pytest

from tests.engine.logits.test_whole_rows import SHAPES
from tests.engine.native.graphs import Exported, export_random
from tests.kernels.conftest import library

__all__ = ["library"]


@pytest.fixture(scope="session")
def shortlisted(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """With a shortlist."""
    return export_random(tmp_path_factory.mktemp("shortlisted"), SHAPES["attention"], shortlist=True)
