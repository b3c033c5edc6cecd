"""The behaviour sequence transformer: what is trained is what sentence-transformers reads, and what a package gives."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from models.checkpoint.encoders import load
from models.tokenizers.tokenizer_json import TokenizerJson
from training.encoders.text import Vocabulary
from training.examples.bst import (
    POOLINGS,
    Bst,
    Clicks,
    auc,
    encode,
    main,
    texts_of,
    train,
    words_of,
    write,
    write_vocabulary,
)
from training.examples.click_log import Item, Shown, make_items, make_log, read
from training.examples.click_log import write as write_log

IN_SENTENCE_TRANSFORMERS = {"mean", "sum_sqrt", "max"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("clicks")
    write_log(folder, users=6, seed=3)
    write_vocabulary(folder / "vocabulary", words_of(read(folder)[0]))
    return folder


def test_a_log_is_the_same_for_everybody(folder: Path) -> None:
    items, log = read(folder)
    generator = random.Random(3)
    assert items == make_items(generator)
    assert log == list(make_log(items, 6, generator))
    assert 0.2 < np.mean([one.clicked for one in log]) < 0.6


def test_a_text_has_the_clicks_before_with_their_gaps_and_what_is_shown() -> None:
    first, second = Item("i1", 0, 0, 0), Item("i2", 0, 0, 0)
    seen = [(first, 100, True), (second, 650, False), (second, 701, True), (first, 90_000, False)]
    texts = texts_of([*(Shown(7, when, item, clicked) for item, when, clicked in seen), Shown(8, 0, first, True)])
    assert texts == [
        ("i1@now", True),
        ("i1@10m i2@now", False),
        ("i1@1h i2@now", True),
        ("i1@3d i2@3d i1@now", False),
        ("i1@now", True),
    ]


def trained(folder: Path, pooling: str, monkeypatch: pytest.MonkeyPatch) -> Bst:
    """A little, with weights as they are written."""
    items, log = read(folder)
    vocabulary = Vocabulary.load(folder / "vocabulary")
    torch.manual_seed(2)
    model = Bst(vocabulary, list(words_of(items).values()), pooling, attends=True)
    train(model, encode(texts_of(log), vocabulary), epochs=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half().float())
        table = model.table().half().float()
    monkeypatch.setattr(model, "table", lambda: table)
    return model


@torch.no_grad()
def probabilities(model: Bst, clicks: Clicks) -> NDArray[np.float32]:
    """Of a click [texts]."""
    return np.asarray(model.logits_of(clicks.ids, clicks.lengths).sigmoid())


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_checkpoint_gives_the_probabilities_that_were_trained(
    pooling: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, texts = trained(folder, pooling, monkeypatch), texts_of(read(folder)[1])
    clicks = encode(texts[:40], Vocabulary.load(folder / "vocabulary"))
    expected = probabilities(model, clicks)
    clicked = clicks.clicked.bool().numpy()
    assert auc(model, clicks) == pytest.approx((expected[clicked][:, None] > expected[~clicked]).mean())
    tmp_path = tmp_path / "model"
    tmp_path.mkdir()
    write(tmp_path, model, folder / "vocabulary")

    checkpoint = load(tmp_path)
    head, tokenizer = checkpoint.classifier, TokenizerJson.load(tmp_path, checkpoint.tokenizer)
    assert head is not None and (head.spec.labels, head.spec.poolings) == (("click",), (pooling,))
    found = list[float]()
    for text, _ in texts[:40]:
        ids = tokenizer.encode(text)
        with torch.no_grad():
            hidden = checkpoint.model.encode(torch.tensor([ids]), torch.tensor([len(ids)]))[0].numpy()
        found.append(float(head.probabilities(head.encoding.of(hidden))[0]))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.std(found) > 1e-3
    if pooling in IN_SENTENCE_TRANSFORMERS:
        theirs = CrossEncoder(str(tmp_path), device="cpu", model_kwargs={"dtype": torch.float32})
        features = theirs.tokenizer([text for text, _ in texts[:40]], padding=True, return_tensors="pt")
        with torch.no_grad():
            scores = theirs(dict(features))["scores"].sigmoid()[:, 0]
        np.testing.assert_allclose(found, scores, atol=1e-5)


def test_the_vocabulary_is_that_of_the_log(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not that of another log, from which a model was made there before."""
    items = [Item("other", 0, 0, 0), *read(folder)[0]]
    write_vocabulary(tmp_path / "vocabulary", words_of(items))
    monkeypatch.setattr(sys, "argv", ["bst", str(folder), "--out", str(tmp_path), "--pooling", "mean"])
    main()
    for made in ("vocabulary", "model"):
        assert Vocabulary.load(tmp_path / made).size == len(words_of(items[1:]))


@pytest.mark.parametrize("log", [None, "1\t1\tnobody\t1\n", "of\tother\tcolumns\n"])
def test_what_is_no_click_log_is_refused(
    log: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if log is not None:
        (tmp_path / "items.tsv").write_text("i1\t1\t1\t1\n")
        (tmp_path / "log.tsv").write_text(log)
    monkeypatch.setattr(sys, "argv", ["bst", str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"error: {tmp_path} cannot be read as a click log: " in capsys.readouterr().err
