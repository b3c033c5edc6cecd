"""server.text.protected: what is not translated, and what stands in its place meanwhile."""

import pytest

from server.text.protected import Glossary, Term, protected, worded

NONE = Glossary()


def found(text: str, glossary: Glossary = NONE) -> list[str]:
    return [text[one.begin : one.end] for one in protected(text, 0, len(text), glossary)]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("See https://example.com/a?b=c&d=(e), please.", ["https://example.com/a?b=c&d=(e"]),
        ("Go to www.example.org/x.", ["www.example.org/x"]),
        ("Write to first.last+tag@mail.example.org.", ["first.last+tag@mail.example.org"]),
        ("Hello {name}, {{ user.id }}, ${HOME}, {0} and {}!", ["{name}", "{{ user.id }}", "${HOME}", "{0}", "{}"]),
        ("%s of %d, %1$s, %(count)d and 5% of it", ["%s", "%d", "%1$s", "%(count)d"]),
        ("Run `pip install x` now", ["`pip install x`"]),
        ("Fine 😀 👍🏽 👩‍👩‍👧 🇵🇹 ❤️!", ["😀", "👍🏽", "👩‍👩‍👧", "🇵🇹", "❤️"]),
        ("Nothing of 50 % here: a@b, {not this}", []),
    ],
)
def test_what_is_copied(text: str, kept: list[str]) -> None:
    assert found(text) == kept


def test_terms_are_whole_words_the_longest_first() -> None:
    glossary = Glossary([Term("red car", "carro"), Term("car", "auto"), Term("US", "EUA", case_sensitive=True)])
    assert found("The Red Car of cars, a CAR for US and us", glossary) == ["Red Car", "CAR", "US"]


def test_a_term_that_is_not_translated_stays_as_it_stands() -> None:
    text, glossary = "A cafe and a CAFE", Glossary([Term("Cafe"), Term("and", "e")])
    assert [one.said for one in protected(text, 0, len(text), glossary)] == ["cafe", "e", "CAFE"]


def test_a_placeholder_is_no_number_of_the_text() -> None:
    text = "Q77 is 78: {a} and {b}"
    wording = worded(text, 0, len(text), protected(text, 0, len(text), NONE))
    assert wording.content == "Q77 is 78: Q79 and Q80"
    assert [text[origin] for origin in wording.origins] == [*"Q77 is 78: {{{ and {{{"]
    assert wording.keeps("Q79 e Q80") and wording.keeps("Q80, Q79")
    assert not wording.keeps("Q79 e Q79") and not wording.keeps("Q79s e Q80") and not wording.keeps("Q79")
