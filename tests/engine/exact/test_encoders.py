"""Hidden states of encoders alone, from the graphs that are served, are those of CTranslate2 where it has the family.

Those of transformers are in tests.models.checkpoint.encoders.test_encoders, and export compares with them.
"""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.cpu.encoder import CpuEncoder
from models.checkpoint.encoders import load
from tests.engine.exact.like_ctranslate2 import hidden_states
from tests.models.checkpoint.encoders.saved import FAMILIES, PIECES, write
from tests.models.encoders import saved

LENGTHS = (1, 7, 12, 40)
CONVERTED = ("bert", "roberta", "xlm-roberta with a head", "distilbert")
"""To trace one takes seconds: CamemBERT is a RoBERTa."""
NO_CONVERTER = ("mpnet", "modernbert")


@pytest.mark.parametrize("family", CONVERTED)
def test_hidden_states_are_those_of_ctranslate2(family: str, tmp_path: Path) -> None:
    """Packed with others, each in its own way."""
    folder = write(tmp_path / "checkpoint", FAMILIES[family]()).folder
    chance = np.random.default_rng(3)
    sources = [tuple(chance.integers(4, PIECES, length).tolist()) for length in LENGTHS]
    checkpoint = load(folder)
    with closing(CpuEncoder(saved(checkpoint.model, tmp_path), checkpoint.config.max_positions)) as encoder:
        found = [encoded.hidden() for encoded in encoder.encode(sources)]
    for ours, theirs in zip(found, hidden_states(folder, sources), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5, rtol=0)


@pytest.mark.parametrize("family", NO_CONVERTER)
def test_ctranslate2_says_which_families_it_does_not_convert(family: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "checkpoint", FAMILIES[family]()).folder
    with pytest.raises(ValueError, match="No conversion is registered for the model configuration"):
        hidden_states(folder, [(5,)])
