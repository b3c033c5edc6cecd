"""A served model of several target languages translates into the one that is asked for, as Hugging Face does."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import Client, InvalidArgument
from models.decoding import Decoding
from models.package.folder import Package
from tests.checkpoints import flores
from tests.oracles import HuggingFace
from tests.server_process import server_process

CODES = {"pt": ">>pt<<", "es": ">>spa<<"}
TEXTS = [english[:60].strip() for english, _ in flores()[:60] if english.isascii()][:8]
DECODING = Decoding(1, 1, 60, 1.0, False)


@pytest.fixture(scope="module")
def client(many_package: Package) -> Iterator[Client]:
    with server_process(many_package.folder) as server:
        with Client(server.target) as client:
            yield client
        assert server.end(signal.SIGTERM) == 0


@pytest.fixture(scope="module")
def expected(many_checkpoint: Path, many_package: Package) -> dict[str, list[str]]:
    """By target language, what transformers makes of the texts with the code in front."""
    tokenizer, oracle = many_package.tokenizer(), HuggingFace(many_checkpoint)

    def translate(code: str) -> list[str]:
        sources = [tuple(tokenizer.encode(f"{code} {text}")) for text in TEXTS]
        return [tokenizer.decode(best[0]) for best, *_ in oracle.generate(sources, DECODING)]

    return {language: translate(code) for language, code in CODES.items()}


@pytest.mark.parametrize("language", CODES)
def test_each_language_has_its_own_translations(client: Client, expected: dict[str, list[str]], language: str) -> None:
    found = client.translate(TEXTS, target_language=language, num_beams=1)
    assert [translation.text for translation in found] == expected[language]
    other = client.translate(TEXTS, target_language="es" if language == "pt" else "pt", num_beams=1)
    assert all(mine.score != theirs.score for mine, theirs in zip(found, other, strict=True))
    assert sum(mine.text != theirs.text for mine, theirs in zip(found, other, strict=True)) >= len(TEXTS) // 2


def test_a_stream_is_in_the_language_too(client: Client, expected: dict[str, list[str]]) -> None:
    *_, last = client.stream_translate(TEXTS[0], target_language="es-MX", num_beams=1)
    assert last.text == expected["es"][0]


def test_texts_that_name_their_language_need_no_other(client: Client, expected: dict[str, list[str]]) -> None:
    named = [f"{code} {text}" for code, text in zip([">>pt<<", ">>spa<<"] * 4, TEXTS, strict=True)]
    found = client.translate(named, num_beams=1)
    assert [translation.text for translation in found] == [
        expected["es" if index % 2 else "pt"][index] for index in range(len(TEXTS))
    ]


def test_without_a_language_the_languages_are_told(client: Client) -> None:
    with pytest.raises(InvalidArgument, match='target_language_code is ""; the model has pt, es, zh-Hant') as caught:
        client.translate([f">>pt<< {TEXTS[0]}", TEXTS[1]])
    assert caught.value.reason == "LANGUAGE_NOT_SUPPORTED"
