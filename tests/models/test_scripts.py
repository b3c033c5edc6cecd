"""models.scripts: against CLDR's likely subtags, as the package langcodes has them, and Unicode's own names."""

import pytest
from langcodes import Language

from models.scripts import SCRIPT_OF, SCRIPTS, is_written_in, letters_of, script


@pytest.mark.parametrize("language", SCRIPT_OF)
def test_languages_are_written_in_the_script_that_cldr_says(language: str) -> None:
    assert Language.get(language).maximize().script == SCRIPT_OF[language]


@pytest.mark.parametrize(
    ("tag", "named"),
    [("sr-Latn", "Latn"), ("zh_Hant", "Hant"), ("uz-Cyrl-UZ", "Cyrl"), ("PT-br", "Latn"), ("en-Latn-GB", "Latn")],
)
def test_a_tag_may_name_its_script(tag: str, named: str) -> None:
    assert letters_of(tag) == SCRIPTS[named]


@pytest.mark.parametrize("tag", ["", "tlh", "sr", "pt-Zzzz"])
def test_what_is_not_known_is_not_judged(tag: str) -> None:
    assert not letters_of(tag)


@pytest.mark.parametrize(
    ("language", "letters"),
    [
        ("pt", "Olá, ação"),
        ("ru", "Здравствуйте"),
        ("ja", "こんにちは世界カード"),
        ("ko", "안녕하세요"),
        ("zh", "你好世界"),
        ("hi", "नमस्ते"),
        ("th", "สวัสดี"),
        ("ar", "مرحبا"),
        ("el", "Γειά"),
    ],
)
def test_letters_of_a_language_are_its_scripts(language: str, letters: str) -> None:
    found = {script(letter) for letter in letters if letter.isalpha()}
    assert found <= letters_of(language)


def test_what_was_familiar_in_one_script_is_a_stranger_in_another() -> None:
    latin, greek = SCRIPTS["Latn"], SCRIPTS["Grek"]
    for _ in range(2):  # at first, and once its characters are known
        assert is_written_in("Olá, 3 vezes!", latin)
        assert not is_written_in("Olá", greek)
        assert is_written_in("Γειά!", greek)
        assert not is_written_in("Γειά", latin)
        assert not is_written_in("Olá, Γειά", latin)
