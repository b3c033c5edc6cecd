"""server.translation.options: what callers leave open, and what they may not ask for."""

import math
from dataclasses import replace

import pytest

from engine.targets import TargetRules
from models.decoding import Decoding, Options
from models.tokenizers.byte_tokenizer import ByteSpec, ByteTokenizer
from models.tokenizers.target_texts import Pieces
from server.errors import (
    LanguageNotSupported,
    OptionNotOffered,
    OptionOutOfRange,
    OptionsConflict,
    PhraseNotWritable,
)
from server.translation.options import Route, check_route, resolve
from tests.serving import MODEL, tokenizer

BEAMS = replace(MODEL, defaults=Decoding(4, 1, 100, 0.6, "never"), max_beams=16, rows=100)
TOKENIZER = ByteTokenizer(ByteSpec())
RULES = TargetRules((0,), frozenset({1}), pieces=Pieces(TOKENIZER.pieces))


def resolved(options: Options) -> Decoding:
    return resolve(options, BEAMS, TOKENIZER, RULES)


def test_what_is_left_open_is_the_models_default() -> None:
    assert resolved(Options()) == BEAMS.defaults


def test_what_is_set_stays() -> None:
    options = Options(
        num_beams=16, num_return_sequences=16, max_new_tokens=128, length_penalty=-10, early_stopping=False
    )
    assert resolved(options) == Decoding(16, 16, 128, -10, False)


@pytest.mark.parametrize(
    ("options", "field", "numbers"),
    [
        (Options(num_beams=0), "num_beams", {"value": "0", "min": "1", "max": "16"}),
        (Options(num_beams=-1), "num_beams", {"value": "-1", "min": "1", "max": "16"}),
        (Options(num_beams=10**6), "num_beams", {"value": "1000000", "min": "1", "max": "16"}),
        (Options(num_return_sequences=0), "num_return_sequences", {"value": "0", "min": "1", "max": "4"}),
        (Options(num_return_sequences=5), "num_return_sequences", {"value": "5", "min": "1", "max": "4"}),
        (Options(mbr_samples=65), "mbr_samples", {"value": "65", "min": "0", "max": "64"}),
        (Options(num_beams=2, num_beam_groups=3), "num_beam_groups", {"value": "3", "min": "1", "max": "2"}),
        (Options(num_beams=2, num_return_sequences=3), "num_return_sequences", {"value": "3", "min": "1", "max": "2"}),
        (Options(max_new_tokens=0), "max_new_tokens", {"value": "0", "min": "1", "max": "128"}),
        (Options(max_new_tokens=129), "max_new_tokens", {"value": "129", "min": "1", "max": "128"}),
        (Options(length_penalty=10.5), "length_penalty", {"value": "10.5", "min": "-10.0", "max": "10.0"}),
        (Options(length_penalty=math.nan), "length_penalty", {"value": "nan", "min": "-10.0", "max": "10.0"}),
        (Options(length_penalty=math.inf), "length_penalty", {"value": "inf", "min": "-10.0", "max": "10.0"}),
        (Options(length_penalty=-math.inf), "length_penalty", {"value": "-inf", "min": "-10.0", "max": "10.0"}),
    ],
)
def test_out_of_range_is_refused_with_all_numbers(options: Options, field: str, numbers: dict[str, str]) -> None:
    with pytest.raises(OptionOutOfRange) as caught:
        resolved(options)
    assert caught.value.field == f"decoding.{field}"
    assert caught.value.metadata == numbers
    assert all(number in caught.value.message for number in numbers.values())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Options(num_beams=4, num_beam_groups=3, diversity_penalty=1.0), ("num_beam_groups", "3", "num_beams", "4")),
        (Options(num_beam_groups=2), ("num_beam_groups", "2", "diversity_penalty", "0.0")),
        (Options(diversity_penalty=0.5), ("diversity_penalty", "0.5", "num_beam_groups", "1")),
        (
            Options(num_beam_groups=2, diversity_penalty=1.0, do_sample=True),
            ("do_sample", "true", "num_beams", "4"),
        ),
        (Options(mbr_samples=4), ("mbr_samples", "4", "do_sample", "false")),
        (Options(forced_bos_token=(7,), suppress_tokens=(5, 7)), ("forced_bos_token", "7", "suppress_tokens", "7")),
        (
            Options(mbr_samples=4, num_return_sequences=5, num_beams=1, do_sample=True),
            ("num_return_sequences", "5", "mbr_samples", "4"),
        ),
    ],
)
def test_what_excludes_each_other_is_refused(options: Options, told: tuple[str, str, str, str]) -> None:
    with pytest.raises(OptionsConflict) as caught:
        resolved(options)
    assert tuple(caught.value.metadata.values()) == told
    assert all(value in caught.value.message for value in told)


def test_nan_is_told_to_be_finite() -> None:
    with pytest.raises(OptionOutOfRange, match="finite"):
        resolved(Options(length_penalty=math.nan))


@pytest.mark.parametrize(
    ("options", "field", "numbers"),
    [
        (Options(must_include=("",)), "must_include[0]", ("0", "1", "64")),
        (Options(must_include=((5,), ())), "must_include[1]", ("0", "1", "64")),
        (Options(must_include=((40000,),)), "must_include[0]", ("40000", "0", "32000")),
        (Options(must_include=("a",) * 10**5), "must_include", ("100000", "0", "64")),
        (Options(must_include=("abcdefgh",) * 13), "must_include", ("104", "1", "100")),
        (Options(must_include=("ab",), max_new_tokens=1), "must_include", ("2", "1", "1")),
        (Options(must_exclude=("a", "")), "must_exclude[1]", ("0", "1", "256")),
        (Options(must_exclude=("a" * 257,)), "must_exclude[0]", ("257", "1", "256")),
        (Options(must_exclude=((40000,),)), "must_exclude[0]", ("40000", "0", "32000")),
        (Options(must_exclude=("a",) * 10**5), "must_exclude", ("100000", "0", "1000")),
        (Options(bad_words=("a",) * 10**5), "bad_words", ("100000", "0", "1000")),
        (Options(sequence_bias=(("a", 1.0), ("b", math.inf))), "sequence_bias[1]", ("inf", "-10000.0", "10000.0")),
        (Options(sequence_bias=(("a", -math.inf),)), "sequence_bias[0]", ("-inf", "-10000.0", "10000.0")),
        (Options(seed=-1), "seed", ("-1", "0", str(2**53))),
        (Options(seed=2**53 + 1), "seed", (str(2**53 + 1), "0", str(2**53))),
        (Options(stop_strings=("a", "")), "stop_strings[1]", ("0", "1", "256")),
        (Options(stop_strings=("a",) * 65), "stop_strings", ("65", "0", "64")),
    ],
    ids=str,
)
def test_phrases_out_of_range_are_refused_with_both_numbers(
    options: Options, field: str, numbers: tuple[str, ...]
) -> None:
    with pytest.raises(OptionOutOfRange) as caught:
        resolved(options)
    assert caught.value.field == f"decoding.{field}"
    assert tuple(caught.value.metadata[name] for name in ("value", "min", "max")) == numbers
    assert all(number in caught.value.message for number in numbers)


@pytest.mark.parametrize(
    ("options", "other", "value"),
    [
        (Options(num_beams=1), "num_beams", "1"),
        (Options(do_sample=True, num_beams=1), "do_sample", "true"),
        (Options(num_beam_groups=2, diversity_penalty=0.5), "num_beam_groups", "2"),
        (Options(return_alternatives=True, num_beams=1), "return_alternatives", "true"),
        (Options(suppress_tokens=(99, 101)), "suppress_tokens", "101"),
        (Options(bad_words=((4,), "bc")), "bad_words[1]", "[101, 102]"),
        (Options(must_exclude=("x", "bc")), "must_exclude[1]", "bc"),
        (Options(must_exclude=((101, 102),)), "must_exclude[0]", "[101, 102]"),
        (Options(stop_strings=("x",)), "stop_strings", "['x']"),
    ],
    ids=str,
)
def test_a_phrase_that_cannot_be_had_is_refused(options: Options, other: str, value: str) -> None:
    with pytest.raises(OptionsConflict) as caught:
        resolved({"must_include": ("abc",)} | options)
    assert caught.value.metadata["other"] == other and caught.value.metadata["other_value"] == value
    assert caught.value.field in ("decoding.must_include", "decoding.must_include[0]", f"decoding.{other}")
    assert "leave" in caught.value.message or "send" in caught.value.message


@pytest.mark.parametrize("options", [{"encoder_repetition_penalty": 1.5}, {"encoder_no_repeat_ngram_size": 2}], ids=str)
def test_two_vocabularies_have_no_tokens_in_common(options: Options) -> None:
    with pytest.raises(OptionNotOffered, match=r"does not give one vocabulary of source and target, .*sequence_bias"):
        resolve(options, replace(BEAMS, shares_vocabulary=False), TOKENIZER, RULES)
    assert resolved(options).looks_at_source


def test_an_end_token_in_a_phrase_is_refused() -> None:
    with pytest.raises(OptionsConflict, match="an end token is 1"):
        resolved(Options(must_include=((5, 1),)))


def test_a_phrase_that_the_model_writes_otherwise_is_refused() -> None:
    with pytest.raises(PhraseNotWritable, match='"漢 字", which the model writes "'):
        resolve(Options(must_include=("a", "漢 字")), BEAMS, tokenizer(), RULES)


def test_phrases_become_tokens_but_for_those_that_no_text_may_have() -> None:
    found = resolved(Options(must_include=("ab", (7,)), must_exclude=("b a", (8,)), bad_words=("d",), num_beams=2))
    assert (found.must_include, found.must_exclude, found.bad_words) == (((100, 101), (7,)), ("b a", (8,)), ((103,),))


@pytest.mark.parametrize(
    ("route", "found"),
    [
        (Route(target_language="pt"), Route("en", "pt")),
        (Route("en", "pt-BR"), Route("en", "pt-BR")),
        (Route("en-GB", "PT-PT"), Route("en", "pt")),
    ],
)
def test_routes_the_model_has(route: Route, found: Route) -> None:
    assert check_route(route, MODEL) == found


def test_a_model_of_an_unknown_language_is_asked_without_one() -> None:
    model = replace(MODEL, source_languages=("und",), target_languages=("und",))
    assert check_route(Route(), model) == Route("und", "und")


@pytest.mark.parametrize(
    ("route", "field", "tag", "supported"),
    [
        (Route(source_language="pt", target_language="pt"), "source_language_code", "pt", "en"),
        (Route(source_language="en", target_language="de"), "target_language_code", "de", "pt, pt-BR"),
        (Route(source_language="en"), "target_language_code", "", "pt, pt-BR"),
        (Route(source_language="\x00", target_language="pt"), "source_language_code", "\x00", "en"),
    ],
)
def test_a_language_the_model_lacks_or_needs_is_told_what_there_is(
    route: Route, field: str, tag: str, supported: str
) -> None:
    with pytest.raises(LanguageNotSupported) as caught:
        check_route(route, MODEL)
    assert caught.value.field == field
    assert caught.value.metadata == {"language_code": tag, "supported": supported}


def test_a_language_that_nobody_named_at_the_export_has_a_way_out() -> None:
    unknown = replace(MODEL, source_languages=("und",), target_languages=("und",))
    check_route(Route(), unknown)
    check_route(Route(source_language="und", target_language="und"), unknown)
    with pytest.raises(LanguageNotSupported) as caught:
        check_route(Route(target_language="de"), unknown)
    told = "leave both languages out, or export the checkpoint again with --target-language"
    assert caught.value.message == f'target_language_code is "de"; the model has und; und is unknown: {told}'
    with pytest.raises(LanguageNotSupported, match=r"with --source-language$"):
        check_route(Route(source_language="en", target_language="de"), unknown)
