"""MADLAD's tokenizer, as google/madlad400-3b-mt lies on the Hub: languages are pieces, and "<unk>" has the id 0."""

from pathlib import Path
from typing import Any

import pytest
import transformers
from sentencepiece import SentencePieceProcessor

from models.checkpoint.contents import CheckpointError
from models.checkpoint.t5_like import read_tokenizer
from models.tokenizers.tokenizer_json import TokenizerJson, TokenizerJsonSpec
from tests.checkpoints import edit_json
from tests.models.tokenizers.test_tokenizer_json import SCRIPTS, sentencepieces, texts, theirs

__all__ = ["theirs"]

UNKNOWN_ID, START_ID, END_ID = 0, 1, 2
CODES = {"pt": "<2pt>", "de": "<2de>", "zh": "<2zh>", "zh-Latn": "<2zh_Latn>"}
OTHERS = ["<2ms_Arab_BN>", "<2translated>"]
"""Pieces that name no language, in a form that we know."""


def madlad(folder: Path) -> None:
    """Its own configuration, on pieces trained here."""
    control = {"unk_id": UNKNOWN_ID, "bos_id": START_ID, "eos_id": END_ID, "pad_id": -1}
    written: dict[str, object] = {"eos_token": "</s>", "pad_token": "<s>", "unk_token": "<unk>", "extra_ids": 0}
    written |= {"additional_special_tokens": [], "clean_up_tokenization_spaces": True, "legacy": False}
    symbols = [*CODES.values(), *OTHERS]
    sentencepieces(folder, "spiece.model", symbols, control, tokenizer_class="T5Tokenizer", **written)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("madlad")
    madlad(folder)
    return folder


@pytest.fixture(scope="module")
def ours(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenizerJson:
    return opened(folder, tmp_path_factory.mktemp("package"))


def opened(folder: Path, package: Path) -> TokenizerJson:
    spec, files, _, _ = read_tokenizer(folder, END_ID)
    for name, content in files.items():
        (package / name).write_text(content, encoding="utf-8")
    return TokenizerJson.load(package, TokenizerJsonSpec.model_validate_json(spec.model_dump_json()))


def test_ids_are_those_of_transformers_but_for_what_is_unknown(ours: TokenizerJson, theirs: Any) -> None:
    """transformers 5 takes every T5's token 2 for what the vocabulary lacks: here that would end the source."""
    asked, expected = [*SCRIPTS, *texts()], list[list[int]]()
    for ids in theirs(asked).input_ids:
        expected.append([UNKNOWN_ID if token_id == END_ID else token_id for token_id in ids[:-1]] + [END_ID])
    assert [ours.encode(text) for text in asked] == expected
    assert ours.unknown_id == UNKNOWN_ID and any(UNKNOWN_ID in ids for ids in expected)


def test_what_is_unknown_is_that_to_sentencepiece(ours: TokenizerJson, folder: Path) -> None:
    pieces = SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    assert ours.encode("A ☃ house")[:-1] == pieces.encode("A ☃ house")


def test_an_unknown_token_of_another_name_has_to_be_said(tmp_path: Path) -> None:
    """transformers calls it "<unk>" where nobody says otherwise, and gives the vocabulary a token of that name."""
    sentencepieces(tmp_path, "spiece.model", [], {"unk_piece": "[UNK]", "unk_id": 0}, tokenizer_class="T5Tokenizer")
    with pytest.raises(CheckpointError, match=r"unk_token is '<unk>', which is none of its \d+ pieces: say in"):
        read_tokenizer(tmp_path, END_ID)
    edit_json(tmp_path / "tokenizer_config.json", unk_token="[UNK]")
    assert opened(tmp_path, tmp_path).unknown_id == 0


@pytest.mark.parametrize("tag", CODES)
def test_a_target_language_is_told_as_in_transformers(tag: str, ours: TokenizerJson, theirs: Any) -> None:
    ids = ours.encode("It started to rain.", tag)
    assert ids == theirs(f"{CODES[tag]} It started to rain.").input_ids
    assert len(ours.spans("It started to rain.", tag)) == len(ids)


def test_a_text_names_no_other_language(ours: TokenizerJson, theirs: Any) -> None:
    codes = set(theirs.convert_tokens_to_ids([*CODES.values()]))
    text = "Say <2de> to me <2zh_Latn>."
    assert len(codes & set(theirs(text).input_ids)) == 2
    assert not codes & set(ours.encode(text))


def test_codes_may_be_tokens_that_were_added(tmp_path: Path) -> None:
    """transformers adds the pieces of a folder that says nothing of such tokens: no space is before them."""
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "package").mkdir()
    sentencepieces(tmp_path / "checkpoint", "spiece.model", [*CODES.values()], tokenizer_class="T5Tokenizer")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    ours = opened(tmp_path / "checkpoint", tmp_path / "package")
    assert [len(code) for code in ours.spec.target_codes.values()] == [1] * len(CODES)
    assert ours.encode("It started.", "zh-Latn") == theirs("<2zh_Latn> It started.").input_ids


def test_a_package_of_before_has_one_token_for_a_language(ours: TokenizerJson) -> None:
    content = ours.spec.model_dump(mode="json") | {"target_codes": {"pt": 3}}
    assert TokenizerJsonSpec.model_validate(content).target_codes == {"pt": (3,)}
