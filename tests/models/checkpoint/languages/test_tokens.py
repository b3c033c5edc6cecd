"""The languages of multilingual models, by the lists that transformers has of them."""

import pytest
from langcodes import tag_is_valid
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M100
from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as MBART
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART_50
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB

from models.checkpoint.languages.tokens import language_tokens
from models.languages import WELL_FORMED

CONTROL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<extra_id_0>"]
LISTS = {
    "NLLB": NLLB,
    "mBART": MBART,
    "mBART-50": MBART_50,
    "M2M100": [f"__{code}__" for code in M2M100["m2m100"]],
    "WMT21": [f"__{code}__" for code in M2M100["wmt21"]],
}


@pytest.mark.parametrize("tokens", LISTS.values(), ids=LISTS.keys())
def test_every_language_has_a_tag_of_its_own(tokens: list[str]) -> None:
    found = language_tokens([*CONTROL, *tokens])
    assert list(found.values()) == list(dict.fromkeys(tokens))
    assert all(WELL_FORMED.fullmatch(tag) and tag_is_valid(tag) for tag in found)


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("NLLB", {"pt": "por_Latn", "zh-Hans": "zho_Hans", "zh-Hant": "zho_Hant", "yue": "yue_Hant"}),
        ("NLLB", {"ar": "arb_Arab", "arz": "arz_Arab", "fa": "pes_Arab", "fa-AF": "prs_Arab", "hi": "hin_Deva"}),
        ("NLLB", {"ak": "aka_Latn", "tw": "twi_Latn", "kr-Arab": "knc_Arab", "kr-Latn": "knc_Latn", "nb": "nob_Latn"}),
        ("mBART", {"pt": None, "en": "en_XX", "zh": "zh_CN", "ar": "ar_AR"}),
        ("mBART-50", {"pt": "pt_XX", "fa": "fa_IR", "uk": "uk_UA"}),
        ("M2M100", {"pt": "__pt__", "nso": "__ns__", "zh": "__zh__", "ast": "__ast__"}),
    ],
)
def test_tags_are_what_people_write(family: str, expected: dict[str, str | None]) -> None:
    found = language_tokens(LISTS[family])
    assert {tag: found.get(tag) for tag in expected} == expected


def test_tokens_before_a_source() -> None:
    tokens = ["<2pt>", "<2zh>", "<2zh_Hant>", "<2bg>", "<2bg_Latn>", "<2translate>", "<s>", "<2>"]
    assert language_tokens(tokens) == {
        "pt": "<2pt>",
        "zh": "<2zh>",
        "zh-Hant": "<2zh_Hant>",
        "bg": "<2bg>",
        "bg-Latn": "<2bg_Latn>",
    }


def test_a_vocabulary_without_languages_has_none() -> None:
    assert language_tokens(CONTROL) == language_tokens([]) == {}
