"""server.text.sentences: where sentences end, and where one that is too long is divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.text.sentences import divided, sentences


def texts(text: str, language: str = "en") -> list[str]:
    return [text[begin:end] for begin, end in sentences(text, language)]


@pytest.mark.parametrize(
    ("language", "found"),
    [
        ("en", ["Dr. Smith has a house.", "He lives in it!", "Why?", "It cost $3.50."]),
        ("en", ["See fig. 3.", "It rained."]),
        ("en", ["He came vs. 3 others.", "They won."]),
        (
            "pt",
            [
                "Ele nasceu em 3 de jan. de 1990.",
                "Veja a pág. 12 do livro, p. ex. o capítulo 3.",
                "O Sr. Silva chegou.",
            ],
        ),
        ("pt-BR", ["O art. 5 diz isso.", "Fim."]),
        ("zz", ["One.", "Two."]),
    ],
)
def test_sentences(language: str, found: list[str]) -> None:
    assert texts("  ".join(found), language) == found


def test_a_script_without_spaces() -> None:
    assert texts("你好。再见。", "zh") == ["你好。", "再见。"]


@given(st.text(alphabet="ab .,;!?\n\t\u00a0é。", max_size=60))
def test_nothing_but_white_space_is_between_sentences(text: str) -> None:
    at = 0
    for begin, end in sentences(text, "en"):
        assert begin < end and not text[at:begin].strip()
        assert text[begin:end] == text[begin:end].strip()
        at = end
    assert not text[at:].strip()


@given(st.text(alphabet="ab ,;", max_size=80), st.integers(1, 20))
def test_a_long_sentence_is_divided_into_what_fits(text: str, most: int) -> None:
    """But for words that are too long themselves."""
    text = text.strip()
    found = list(divided(text, (0, len(text)), lambda part: len(part) <= most))
    assert " ".join(text[begin:end] for begin, end in found).split() == text.split()
    for begin, end in found:
        assert end - begin <= most or " " not in text[begin:end]


def test_the_best_place_to_divide_is_taken() -> None:
    text = "one two three, four five; six seven eight nine ten"
    found = divided(text, (0, len(text)), lambda part: len(part) < 30)
    assert [text[begin:end] for begin, end in found] == ["one two three, four five;", "six seven eight nine ten"]


@pytest.mark.parametrize(
    ("text", "most", "pieces"),
    [
        ("我们去了北京，又去了上海；都很累。", 13, ["我们去了北京，又去了上海；", "都很累。"]),
        ("これは長い文です、最後まで読んでください。", 13, ["これは長い文です、", "最後まで読んでください。"]),
        ("ذهبنا إلى السوق، ثم عدنا إلى البيت", 20, ["ذهبنا إلى السوق،", "ثم عدنا إلى البيت"]),
    ],
)
def test_what_other_scripts_write_for_a_comma_is_a_place_too(text: str, most: int, pieces: list[str]) -> None:
    assert [text[begin:end] for begin, end in divided(text, (0, len(text)), lambda part: len(part) <= most)] == pieces
