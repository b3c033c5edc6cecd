"""A behaviour sequence transformer as it is served: the probabilities that were trained, and vectors of the texts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from dragoman.local import Translator
from export.__main__ import main
from tests.training.test_bst import folder, probabilities, trained
from training.encoders.text import Vocabulary
from training.examples.bst import encode, texts_of, write
from training.examples.click_log import read

__all__ = ["folder"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("pooling", ["concat", "attention"])
def test_a_package_gives_the_probabilities_that_were_trained(
    pooling: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exported as users do, and asked: together, alone, and about an item that is new."""
    model = trained(folder, pooling, monkeypatch)
    texts = [text for text, _ in texts_of(read(folder)[1])[:30]] + ["i7@1h new@3d i8@now"]
    (tmp_path / "model").mkdir()
    write(tmp_path / "model", model, folder / "vocabulary")
    (tmp_path / "samples.txt").write_text("\n".join(texts))
    arguments = ["--samples", str(tmp_path / "samples.txt"), "--verify-samples", "4", "--quiet"]
    assert main([str(tmp_path / "model"), "--out", str(tmp_path / "package"), *arguments]) == 0

    asked = encode([(text, False) for text in texts], Vocabulary.load(folder / "vocabulary"))
    theirs = AutoModel.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    learnt = pooling == "attention"
    with Translator(tmp_path / "package", workers=1) as translator:
        together = translator.classify(texts)
        assert [translator.classify(text).labels for text in texts] == [found.labels for found in together]
        vector = np.array(translator.encode(texts[20], poolings=["attention" if learnt else "mean"]).values)
        assert translator.model().default_encoding.poolings == ("mean",)
    labels = [label for found in together for label in found.labels]
    assert [label.name for label in labels] == ["click"] * len(texts)
    scores = [label.probability for label in labels]
    np.testing.assert_allclose(scores, probabilities(model, asked), atol=1e-5)
    assert np.std(scores) > 1e-3
    with torch.no_grad():
        hidden = theirs(asked.ids[20:21, : asked.lengths[20]]).last_hidden_state[0]
        pooled = model.scores(hidden).softmax(0).T @ hidden if learnt else hidden.mean(0)
    np.testing.assert_allclose(vector, pooled.squeeze(), atol=1e-5)
