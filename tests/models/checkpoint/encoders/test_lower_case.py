"""do_lower_case of sentence-transformers: taken where the tokenizer's normalizer makes texts lower case itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers.sentence_transformer.modules import Transformer
from tokenizers import normalizers
from transformers import BertModel

from models.checkpoint import CheckpointError
from models.checkpoint.encoders import load
from tests.models.checkpoint.encoders.saved import bert, wordpiece, write
from tests.models.tokenizers.test_tokenizer_json import SCRIPTS

UPPER = [*SCRIPTS, *(text.upper() for text in SCRIPTS), "ΟΔΟΣ, İstanbul, STRAẞE"]
LOWER, BERTS = normalizers.Lowercase(), normalizers.BertNormalizer()
CASED = normalizers.BertNormalizer(lowercase=False)


@pytest.mark.parametrize(
    ("normalizer", "taken"),
    [
        (BERTS, True),
        (LOWER, True),
        (normalizers.Sequence([normalizers.NFKC(), LOWER]), True),
        (normalizers.Sequence([BERTS, normalizers.NFC()]), True),
        (normalizers.Sequence([normalizers.Replace("A", "ab"), BERTS]), False),
        (normalizers.Sequence([]), False),
        (CASED, False),
        (None, False),
    ],
)
def test_lower_case_is_for_tokenizers_that_have_it(normalizer: Any, taken: bool, tmp_path: Path) -> None:
    """As in BGE. Where it is taken, sentence-transformers has the same tokens."""
    saved, tokenizer = write(tmp_path / "tiny", BertModel(bert())), wordpiece()
    tokenizer.normalizer = normalizer
    tokenizer.save(str(saved.folder / "tokenizer.json"))
    # Or transformers would put BertTokenizer's own normalizer in place of the file's.
    as_it_is = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    (saved.folder / "tokenizer_config.json").write_text(json.dumps(as_it_is))
    saved.sentences(["Transformer", "Pooling"], {"pooling_mode": "mean"}, sentence_bert_config={"do_lower_case": True})
    if not taken:
        with pytest.raises(CheckpointError, match="do_lower_case is true; the tokenizer's normalizer leaves capitals"):
            load(saved.folder)
        return
    ours, theirs = load(saved.folder).open_tokenizer(), Transformer(str(saved.folder), do_lower_case=True).tokenizer
    assert [ours.encode(text) for text in UPPER] == [theirs(text)["input_ids"] for text in UPPER]


def test_lower_case_changes_no_character_of_berts_normalizer() -> None:
    for strips in (None, True, False):
        alone = normalizers.BertNormalizer(lowercase=True, strip_accents=strips)
        after = normalizers.Sequence([LOWER, alone])
        for code in (*range(0xD800), *range(0xE000, 0x20000)):
            assert alone.normalize_str(chr(code)) == after.normalize_str(chr(code)), hex(code)
