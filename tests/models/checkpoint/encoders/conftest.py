"""What the tests of encoders need."""

from pathlib import Path

import pytest
from transformers import BertModel

from tests.models.checkpoint.encoders.saved import Saved, bert, write


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return write(tmp_path / "tiny", BertModel(bert()))
