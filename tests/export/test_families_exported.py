"""A folder of a family that transformers saved, tokenizer included, becomes a package that translates."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerFast

from export import __main__ as command
from models.checkpoint import CheckpointError, load_checkpoint
from models.package.folder import Package
from tests.checkpoints import edit_json, flores
from tests.families import BART_LIKE, VOCABULARY, write_family

CONTROL = ("<s>", "<pad>", "</s>", "<unk>")


def write_tokenizer(folder: Path, pieces: int) -> None:
    """BART's kind: byte-level BPE, and <s> and </s> around a text. Trained here."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=pieces, special_tokens=list(CONTROL), show_progress=False)
    backend.train_from_iterator([english for english, _ in flores()[:200]], trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_family(tmp_path / "bart", BART_LIKE["bart, as for summaries"])
    write_tokenizer(folder, VOCABULARY)
    return folder


def test_becomes_a_package(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "package"
    arguments = ["--source-language=en", "--target-language=en", "--verify-samples=3", "--output-layer=full"]
    assert command.main([str(folder), "--out", str(out), *arguments]) == 0
    manifest = Package.open(out).manifest
    assert manifest.certificate.agreements
    assert all(agreement.equal == agreement.sentences for agreement in manifest.certificate.agreements)
    assert {agreement.reference for agreement in manifest.certificate.agreements} == {"pytorch", "transformers"}
    assert manifest.generation.forced_begin_id == 0
    tokenizer = Package.open(out).tokenizer()
    ids = tokenizer.encode("It started to rain.")
    assert (ids[0], ids[-1]) == (0, 2)
    assert tokenizer.decode(ids) == "It started to rain."


def test_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    write_tokenizer(folder, VOCABULARY + 30)
    with pytest.raises(CheckpointError, match=f"has token {VOCABULARY + 29}; the model has {VOCABULARY} tokens"):
        load_checkpoint(folder)


def test_target_language_is_not_guessed(tmp_path: Path) -> None:
    folder = write_family(tmp_path, BART_LIKE["mbart-50"])
    edit_json(folder / "generation_config.json", forced_bos_token_id=None)
    with pytest.raises(CheckpointError, match="forced_bos_token_id is missing; to a mbart model it says the target"):
        load_checkpoint(folder)
