"""models.languages: RFC 4647 lookup, and the codes of multilingual models, as their tokenizers have them."""

import pytest
from langcodes import Language, standardize_tag
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART_50
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB

from models.checkpoint.languages.tokens import language_tokens
from models.languages import lookup
from models.languages.codes import SCRIPTS, TAGS

SUPPORTED = ("en", "pt", "pt-BR", "zh-Hant")


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ("en", "en"),
        ("EN", "en"),
        ("en-GB", "en"),
        ("en-Latn-GB-boont", "en"),
        ("pt-br", "pt-BR"),
        ("pt-BR-x-home", "pt-BR"),
        ("pt-PT", "pt"),
        ("zh-hant-TW", "zh-Hant"),
        ("zh", None),
        ("de", None),
        ("eng", "en"),
        ("eng_Latn", "en"),
        ("por_Latn", "pt"),
        ("pt_XX", "pt"),
        ("pt_BR", "pt-BR"),
        ("zho_Hant", "zh-Hant"),
        ("deu_Latn", None),
        ("", None),
        ("_", None),
        ("en__GB", None),
        ("en-", None),
        ("en--GB", None),
        ("en-GB!", None),
        ("e" * 100, None),
    ],
)
def test_lookup(tag: str, found: str | None) -> None:
    assert lookup(tag, SUPPORTED) == found


@pytest.mark.parametrize(
    ("supported", "expected"),
    [
        (("zh-Hant", "zh-Hans"), {"zh": "zh-Hans", "zh_CN": "zh-Hans", "cmn": "zh-Hans", "zh-Hant-HK": "zh-Hant"}),
        (("zh", "zh-Hant"), {"zh": "zh", "zh-CN": "zh", "zh-TW": "zh-Hant", "zho_Hans": "zh", "zh-Latn": "zh"}),
        (("zh",), {"zh-TW": "zh"}),
        (("zh-Hant", "zh-TW"), {"ZH_TW": "zh-TW", "zh-MO": "zh-Hant", "zh-SG": None}),
        (("nb", "nn", "pbt"), {"no": "nb", "no-NO": "nb", "nor": "nb", "ps": "pbt", "pus": "pbt"}),
        (("no",), {"nb": "no", "nob_Latn": "no", "nn": None}),
    ],
)
def test_what_a_tag_leaves_to_its_reader_is_understood(
    supported: tuple[str, ...], expected: dict[str, str | None]
) -> None:
    assert {tag: lookup(tag, supported) for tag in expected} == expected


def test_scripts_are_the_likely_ones_of_cldr() -> None:
    assert {tag: str(Language.get(tag).maximize().script).lower() for tag in SCRIPTS} == SCRIPTS


@pytest.mark.parametrize("supported", [("pt-br", "pt-BR"), ("pt-BR", "pt-br")])
def test_tags_that_differ_in_case_alone_can_both_be_chosen(supported: tuple[str, str]) -> None:
    """A Marian model of many languages may have codes for both, `>>pt_br<<` and `>>pt_BR<<`."""
    assert [lookup(tag, supported) for tag in supported] == list(supported)
    assert lookup("PT-BR", supported) == supported[0]


@pytest.mark.parametrize("codes", [NLLB, MBART_50], ids=["NLLB", "mBART-50"])
def test_a_code_of_a_multilingual_model_is_served_by_the_tag_of_its_token(codes: list[str]) -> None:
    tags = language_tokens(codes)
    assert len(tags) == len(codes)
    assert {lookup(code, tuple(tags)): code for code in codes} == tags


def test_tags_of_codes_are_those_of_langcodes() -> None:
    for code, tag in TAGS.items():
        assert tag in (standardize_tag(code), standardize_tag(code, macro=True))
