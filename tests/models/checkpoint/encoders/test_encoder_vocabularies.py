"""Encoders without a tokenizer.json: what is made of their vocabularies has the ids of transformers, in all scripts."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    CamembertConfig,
    CamembertModel,
    DistilBertConfig,
    DistilBertModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from export.__main__ import main
from models.checkpoint import CheckpointError
from models.checkpoint.encoders import load
from models.package.folder import Package
from tests.models.checkpoint.encoders.saved import SHAPE, write
from tests.models.tokenizers.test_tokenizer_json import (
    PAGE,
    SCRIPTS,
    camembert,
    texts,
    vocab_and_merges,
    xlm_roberta,
)

SIZE = 1200
BERTS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
XLMS = ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")
BERT: dict[str, Any] = SHAPE | {"vocab_size": SIZE}


def vocab_txt(folder: Path, special: tuple[str, ...] = BERTS, **configuration: object) -> None:
    """WordPiece as BERT's authors kept it: a line for each piece. Trained here on texts of many scripts."""
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizers.BertNormalizer(lowercase=configuration.get("do_lower_case", True) is True)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=list(special), show_progress=False)
    trained.train_from_iterator([*PAGE, *SCRIPTS], trainer)
    ids = trained.get_vocab()
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in sorted(ids, key=lambda piece: ids[piece])))
    if configuration:
        (folder / "tokenizer_config.json").write_text(json.dumps(configuration))


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Path], None]]] = {
    "bert": (lambda: BertModel(BertConfig(**BERT)), vocab_txt),
    "bert, cased": (lambda: BertModel(BertConfig(**BERT)), lambda folder: vocab_txt(folder, do_lower_case=False)),
    "distilbert": (
        lambda: DistilBertModel(DistilBertConfig(vocab_size=SIZE, dim=36, n_layers=1, n_heads=3, hidden_dim=40)),
        vocab_txt,
    ),
    "mpnet": (lambda: MPNetModel(MPNetConfig(**BERT)), lambda folder: vocab_txt(folder, XLMS)),
    "roberta": (lambda: RobertaModel(RobertaConfig(**BERT)), vocab_and_merges),
    "xlm-roberta": (lambda: XLMRobertaModel(XLMRobertaConfig(**BERT)), xlm_roberta),
    "camembert": (lambda: CamembertModel(CamembertConfig(**BERT)), camembert),
}


def write_without(folder: Path, kind: str) -> Path:
    """A folder of an encoder as it was before there was a tokenizer.json."""
    make, vocabulary = KINDS[kind]
    write(folder, make())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    vocabulary(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    folder = write_without(tmp_path / "tiny", kind)
    checkpoint = load(folder)
    assert checkpoint.made_files.keys() == {"tokenizer.json"} and "tokenizer.json" not in checkpoint.files
    assert not (folder / "tokenizer.json").exists(), "a checkpoint stays as it is"
    ours, theirs = checkpoint.open_tokenizer(), AutoTokenizer.from_pretrained(folder)
    asked = [*SCRIPTS, *texts(), *PAGE[:100]]
    found = [ours.encode(text) for text in asked]
    assert found == theirs(asked)["input_ids"]
    assert len({token_id for ids in found for token_id in ids}) > 150


@pytest.mark.parametrize(
    "settings", [{"strip_accents": False}, {"tokenize_chinese_chars": False}, {"do_lower_case": False}]
)
def test_what_tokenizer_config_says_goes_before_a_tokenizer_json(settings: dict[str, bool], tmp_path: Path) -> None:
    saved = write(tmp_path / "tiny", BertModel(BertConfig(**SHAPE)))
    (saved.folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"} | settings))
    asked = [*SCRIPTS, "Élan Vital", "日本語 text"]
    assert (
        list(map(load(saved.folder).open_tokenizer().encode, asked))
        == AutoTokenizer.from_pretrained(saved.folder)(asked)["input_ids"]
    )
    bare = Tokenizer.from_file(str(saved.folder / "tokenizer.json"))
    assert any(bare.encode(text).ids != load(saved.folder).open_tokenizer().encode(text) for text in asked)


@pytest.mark.parametrize("kind", ["bert", "bert, cased"])
def test_ids_are_those_of_bert_in_python(kind: str, tmp_path: Path) -> None:
    """Which shares nothing with the library tokenizers."""
    folder = write_without(tmp_path / "tiny", kind)
    theirs = BertTokenizerLegacy(str(folder / "vocab.txt"), do_lower_case=kind == "bert")
    ours = load(folder).open_tokenizer()
    for text in SCRIPTS:
        assert ours.encode(text) == theirs(text)["input_ids"], text


@pytest.mark.timeout(600)
def test_a_package_has_the_tokenizer_that_was_made(tmp_path: Path) -> None:
    folder, out = write_without(tmp_path / "tiny", "bert"), tmp_path / "package"
    assert main([str(folder), "--out", str(out), "--verify-samples", "4", "--quiet"]) == 0
    package = Package.open(out)
    assert "tokenizer.json" in package.manifest.files
    expected = AutoTokenizer.from_pretrained(folder)(list(SCRIPTS))["input_ids"]
    assert [package.tokenizer().encode(text) for text in SCRIPTS] == expected


@pytest.mark.parametrize(
    ("kind", "file"), [("bert", "vocab.txt"), ("roberta", "merges.txt"), ("xlm-roberta", "sentencepiece.bpe.model")]
)
def test_a_vocabulary_that_is_missing_is_named(kind: str, file: str, tmp_path: Path) -> None:
    """transformers would have control tokens alone, and every text would be unknown."""
    folder = write_without(tmp_path / "tiny", kind)
    (folder / file).unlink()
    with pytest.raises(
        CheckpointError, match=rf"has no tokenizer\.json, and no {re.escape(file)} of|reads no tokenizer there"
    ):
        load(folder)
