"""Damaged files of packages and checkpoints are refused, or open. Their loaders run in a process of their own."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from models.checkpoint import CheckpointError, load_checkpoint
from models.tokenizers.sentencepiece_pair import load_sentencepiece, load_vocabulary
from models.tokenizers.tokenizer import TokenizerError
from tests.checkpoints import edit_json, write_checkpoint
from tests.hostile.files import CORPUS, ZOO, damaged, kinds
from tests.server_process import ROOT

CASES = 25
"""Of each kind. `python -m tests.hostile.files` tries as many as wanted."""


@pytest.mark.timeout(600)
def test_every_damaged_file_is_refused_or_opens() -> None:
    command = [sys.executable, "-m", "tests.hostile.files", "--cases", str(CASES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-1:], done.stderr[-3000:])
    opened = {line.partition(":")[0]: int(line.split()[-4]) for line in lines if " damaged, " in line}
    assert set(opened) == set(kinds())
    assert 0 < sum(opened.values()) < CASES * len(opened)


def test_a_seed_is_a_damage() -> None:
    intact = (ZOO / "manifest.json").read_bytes()
    first, again = ([damaged(intact, random.Random(seed)) for seed in range(20)] for _ in range(2))
    assert first == again
    assert len(set(first)) > 10


@pytest.mark.parametrize("key", ["vocab_size", "encoder_layers", "d_model", "decoder_ffn_dim"])
def test_a_checkpoint_is_not_made_larger_than_its_weights(key: str, tmp_path: Path) -> None:
    shutil.copytree(CORPUS / "marian", tmp_path, dirs_exist_ok=True)
    edit_json(tmp_path / "config.json", **{key: 1 << 30})
    with pytest.raises(CheckpointError, match=r"numbers or more|has 2\d\d"):
        load_checkpoint(tmp_path)


def test_nor_by_its_targets_alone(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, separate=True)
    edit_json(folder / "config.json", decoder_vocab_size=1 << 40)
    with pytest.raises(CheckpointError, match="numbers or more"):
        load_checkpoint(folder)


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000])
def test_a_vocabulary_of_brackets_is_none(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "vocab.json"
    file.write_bytes(content)
    with pytest.raises(TokenizerError, match="cannot be read"):
        load_vocabulary(file)


def test_a_tokenizer_whose_pieces_are_no_text_is_none(tmp_path: Path) -> None:
    file = tmp_path / "source.spm"
    file.write_bytes((CORPUS / "marian" / "source.spm").read_bytes().replace("▁".encode(), b"\xe2\x96A"))
    with pytest.raises(TokenizerError, match="not a SentencePiece model"):
        load_sentencepiece(file)
