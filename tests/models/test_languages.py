"""models.languages: RFC 4647 lookup."""

import pytest

from models.languages import lookup

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
        ("eng", None),
        ("", None),
        ("en_GB", None),
        ("en-", None),
        ("en--GB", None),
        ("en-GB!", None),
        ("e" * 100, None),
    ],
)
def test_lookup(tag: str, found: str | None) -> None:
    assert lookup(tag, SUPPORTED) == found
