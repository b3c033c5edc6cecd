"""models.tokenizers.tokenizer_json, against transformers' fast tokenizer of the same file."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from models.tokenizers.open import open_tokenizer
from models.tokenizers.tokenizer import TokenizerError
from models.tokenizers.tokenizer_json import TokenizerJsonSpec
from tests.checkpoints import flores
from tests.models.checkpoint.test_encoders import wordpiece

SPEC = TokenizerJsonSpec(prefix=(2,), suffix=(3,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = wordpiece()
    tokenizer.enable_truncation(8)  # as the files of some models have it
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_tokens_are_those_of_transformers_whole_and_without_padding(folder: Path) -> None:
    ours = open_tokenizer(folder, SPEC)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    texts = [text for pair in flores()[:200] for text in pair]
    texts += ["", " ", "a", "Ünï 漢字 עברית", "\u200b", "tab\tand\nline", "x" * 300]
    expected = [theirs(text, truncation=False, padding=False)["input_ids"] for text in texts]
    assert [ours.encode(text) for text in texts] == expected


def test_what_looks_like_a_special_token_is_text(folder: Path) -> None:
    ids = open_tokenizer(folder, SPEC).encode("a [SEP] b [CLS]")
    assert (ids[0], ids[-1]) == (2, 3)
    assert not {2, 3} & set(ids[1:-1])


def test_special_tokens_stand_for_no_text(folder: Path) -> None:
    tokenizer = open_tokenizer(folder, SPEC)
    assert tokenizer.decode(tokenizer.encode("the")) == "the"
    assert tokenizer.longest_piece > 1
    assert not tokenizer.names_target("the")


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1, 2]", b"\xff\xfe", b'{"version": "1.0", "model": {}}'])
def test_a_damaged_file_is_named(content: bytes | None, folder: Path) -> None:
    file = folder / "tokenizer.json"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json (is not a tokenizer|cannot be read)"):
        open_tokenizer(folder, SPEC)
