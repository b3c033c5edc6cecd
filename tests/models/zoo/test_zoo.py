"""The models that come with the repository: what they are, that their cards are whole, and that they translate."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.quality import measure
from bench.sentences import heldout
from models.checkpoint import load_checkpoint
from models.package.folder import Package
from tests.checkpoints import ROOT
from training.decoding import TargetLimits, open_package

MODELS = sorted(file.parent for file in (ROOT / "models" / "zoo").glob("*-*/config.json"))
HEADINGS = ("How it was made", "How good it is", "Twenty everyday sentences", "What to know before using it")
LARGEST = 36_100_000
"""Bytes of a folder. The SentencePiece model, the same for both languages, lies there once, with a link to it."""
SENTENCES = slice(0, None, 11)
"""Of the held-out documents: some of each."""
LEAST = 40
"""BLEU of these. The models have some 45 and 49 of all."""

zoo = pytest.mark.parametrize("model", MODELS, ids=lambda folder: folder.name)


@zoo
def test_it_is_a_transformer_with_attention_alone(model: Path) -> None:
    checkpoint = load_checkpoint(model)
    config = checkpoint.transformer.config
    assert (config.decoder_cell, config.encoder_layers, config.decoder_layers, config.width) == ("attention", 6, 2, 256)
    assert f"{checkpoint.source_languages[0]}-{checkpoint.target_languages[0]}" == model.name
    assert sum(file.lstat().st_size for file in model.iterdir()) <= LARGEST


@zoo
def test_its_card_and_notice_are_whole(model: Path) -> None:
    card = (model / "README.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", card, re.MULTILINE)
    assert all(heading in headings for heading in HEADINGS)
    _, _, everyday = card.partition("## Twenty everyday sentences")
    rows = [row for row in everyday.partition("\n## ")[0].splitlines() if row.startswith("| ")]
    assert len(rows) == 1 + 20  # the names of the columns
    notice = (model / "NOTICE").read_text(encoding="utf-8")
    assert len(re.findall(r"\b[0-9a-f]{64}\b", notice)) == 2  # weights and vocabulary it is made from
    assert "Mozilla Public License" in notice and (model / "LICENSE").exists()
    assert f"models/zoo/{model.name}\n" in (ROOT / "NOTICE").read_text(encoding="utf-8")


@zoo
def test_it_translates(model: Path) -> None:
    source, target = model.name.split("-")
    sources, references = heldout(source)[SENTENCES], heldout(target)[SENTENCES]
    quality = measure(translations(Package.open(model), sources), sources, references)
    assert quality.bleu > LEAST
    assert quality.stutters == 0


def translations(package: Package, texts: Sequence[str]) -> list[str]:
    """Greedy ones."""
    with open_package(package, TargetLimits(1)) as translating:
        sources = [translating.tokenizer.encode(text) for text in texts]
        return [translation.text for translation in translating.translate(sources)]
