"""What transformers makes of a SentencePiece model, beside that model itself: export tells where they differ."""

from pathlib import Path
from typing import Any

import pytest
import transformers
from sentencepiece import SentencePieceProcessor

from models.checkpoint.tokenizers.found import read_tokenizer
from models.checkpoint.tokenizers.pieces import other_tokens
from tests.models.tokenizers.test_tokenizer_json import T5_CONTROL, sentencepieces


def told(folder: Path, **rules: Any) -> list[str]:
    """Of a T5 whose SentencePiece model has these rules."""
    sentencepieces(folder, "spiece.model", [], {**T5_CONTROL, **rules}, tokenizer_class="T5Tokenizer")
    return other_tokens(folder, read_tokenizer(folder).made_files)


def test_nothing_is_told_of_the_usual_rules(tmp_path: Path) -> None:
    assert told(tmp_path) == []


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"byte_fallback": True}, "\u00e9 \u2603"),
        ({"add_dummy_prefix": False}, "Two words."),
        ({"remove_extra_whitespaces": False}, "ab  cd "),
        ({"treat_whitespace_as_suffix": True}, "Two words."),
    ],
)
def test_rules_that_transformers_passes_over_are_told(rules: dict[str, bool], text: str, tmp_path: Path) -> None:
    [line] = told(tmp_path, **rules)
    assert f"such as {text!r}, have other tokens by spiece.model itself" in line
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path).tokenize(text)
    assert theirs != SentencePieceProcessor(model_file=str(tmp_path / "spiece.model")).encode(text, out_type=str)


def test_a_tokenizer_json_goes_before(tmp_path: Path) -> None:
    assert told(tmp_path, byte_fallback=True)
    transformers.AutoTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    assert other_tokens(tmp_path, read_tokenizer(tmp_path).made_files) == []
