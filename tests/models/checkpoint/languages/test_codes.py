"""A Marian model of several target languages: its codes are its languages, and reach the source as in transformers."""

import warnings
from pathlib import Path

import pytest
from transformers import MarianTokenizer

from export.inputs import InputError, check_languages, choose_codes
from models.checkpoint import load_checkpoint
from models.checkpoint.languages.codes import target_codes
from models.package.folder import Package
from models.tokenizers.sentencepiece_pair import SentencePiecePair
from models.tokenizers.tokenizer import Tokenizer
from tests.checkpoints import CODES, END, flores, write_checkpoint

TEXTS = [english for english, _ in flores()[:40] if english.isascii()]


@pytest.fixture(scope="module", params=[False, True], ids=["one vocabulary", "two vocabularies"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("codes") / "many", separate=request.param, codes=CODES)


@pytest.fixture(scope="module")
def marian(folder: Path) -> MarianTokenizer:
    """The oracle."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses.")
        return MarianTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return SentencePiecePair.load(folder, load_checkpoint(folder).sentencepiece)


def test_the_codes_are_the_target_languages(folder: Path) -> None:
    checkpoint = load_checkpoint(folder)
    assert checkpoint.target_languages == ("pt", "es", "zh-Hant")
    assert checkpoint.source_languages == ("en",)
    assert checkpoint.sentencepiece.target_codes == {"pt": ">>pt<<", "es": ">>spa<<", "zh-Hant": ">>zho_Hant<<"}


@pytest.mark.parametrize(("language", "code"), [("pt", ">>pt<<"), ("es", ">>spa<<"), ("zh-Hant", ">>zho_Hant<<")])
def test_a_language_gives_the_ids_of_its_code_before_the_text(
    tokenizer: Tokenizer, marian: MarianTokenizer, language: str, code: str
) -> None:
    for text in TEXTS:
        ids = tokenizer.encode(text, language)
        assert ids == marian(f"{code} {text}").input_ids == marian(f"{code}{text}").input_ids
        assert ids[1:] == tokenizer.encode(text)


def test_a_text_that_names_its_language_is_left_to_it(tokenizer: Tokenizer, marian: MarianTokenizer) -> None:
    for text in (">>spa<< The cat", ">>ca@valencia<< The cat"):
        assert tokenizer.names_target(text)
        assert tokenizer.encode(text, "pt") == tokenizer.encode(text) == marian(text).input_ids
    for text in ("The cat", ">>deu<< The cat", "The >>pt<< cat", " >>pt<< The cat"):
        assert not tokenizer.names_target(text)


def test_what_has_no_pieces_gets_no_code(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("​", "pt") == [END]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (["▁a", ">>fra<<", ">>por<<", ">>pt_br<<"], {"fr": ">>fra<<", "pt": ">>por<<", "pt-BR": ">>pt_br<<"}),
        ([">>fra<<", ">>fr<<"], {"fra": ">>fra<<", "fr": ">>fr<<"}),
        ([">>nob<<", ">>zh-TW<<", ">>pob<<"], {"nb": ">>nob<<", "zh-TW": ">>zh-TW<<", "pob": ">>pob<<"}),
        ([">>ca@valencia<<", ">><<", "pt"], {}),
    ],
)
def test_codes_are_told_as_bcp_47_writes_them(codes: list[str], expected: dict[str, str]) -> None:
    found = target_codes({code: index for index, code in enumerate(codes)})
    assert list(found.items()) == list(expected.items())


def test_a_vocabulary_without_codes_has_the_language_of_its_configuration(tiny_checkpoint: Path) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    assert (checkpoint.target_languages, checkpoint.sentencepiece.target_codes) == (("pt",), {})


def test_export_takes_the_chosen_languages_only() -> None:
    codes = {"pt": ">>pt<<", "es": ">>spa<<"}
    assert choose_codes(codes, ["es"]) == {"es": ">>spa<<"}
    assert choose_codes({}, ["es"]) == {}
    with pytest.raises(InputError, match="--target-language is 'de'; the checkpoint has pt, es"):
        choose_codes(codes, ["es", "de"])
    with pytest.raises(InputError, match=r"is 'pt-BR'; the checkpoint has pt, es; the nearest is pt$"):
        choose_codes(codes, ["pt-BR"])


def test_export_says_what_a_checkpoint_calls_a_language_that_others_write_otherwise() -> None:
    with pytest.raises(InputError, match=r"'por_Latn', which is no language tag; the checkpoint's for it is pt$"):
        check_languages("target", ["por_Latn"], ("en", "pt"))
    with pytest.raises(InputError, match=r"'deu_Latn', which is no language tag; expected one like en or pt-BR$"):
        check_languages("target", ["deu_Latn"], ("en", "pt"))


def test_a_package_keeps_the_codes(many_package: Package) -> None:
    assert many_package.manifest.target_languages == ("pt", "es", "zh-Hant")
    tokenizer = many_package.tokenizer()
    assert tokenizer.encode("The cat", "es") == tokenizer.encode(">>spa<< The cat")
