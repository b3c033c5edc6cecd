"""server.catalog: which model a call means."""

from dataclasses import dataclass, replace

import pytest

from server.catalog.catalog import Catalog
from server.catalog.served_model import ServedModel
from server.errors import LanguageNotSupported, ModelNotFound
from tests.serving import MODEL


@dataclass(frozen=True)
class Served:
    model: ServedModel
    open: bool = True


def served(name: str, source: str, target: str, decoder_layers: int = 1) -> Served:
    languages = tuple(source.split()), tuple(target.split())
    return Served(
        replace(
            MODEL,
            name=name,
            source_languages=languages[0],
            target_languages=languages[1],
            decoder_layers=decoder_layers,
        )
    )


EN_PT, PT_EN = served("en-pt", "en", "pt pt-BR"), served("pt-en", "pt", "en")
MANY = served("many", "en de fr", "en de fr")
VECTORS = served("vectors", "en", "en", decoder_layers=0)
ONE, TWO, ALL = Catalog([EN_PT]), Catalog([EN_PT, PT_EN]), Catalog([VECTORS, EN_PT, PT_EN, MANY])


def test_a_model_is_found_by_its_name() -> None:
    assert (ONE.find("en-pt"), TWO.find("pt-en")) == (EN_PT, PT_EN)
    assert list(TWO) == [EN_PT, PT_EN]


def test_the_first_model_needs_no_name() -> None:
    assert (ONE.find(""), TWO.find(""), ALL.find("")) == (EN_PT, EN_PT, VECTORS)


@pytest.mark.parametrize(("catalog", "name", "available"), [(ONE, "En-pt", "en-pt"), (TWO, "de-en", "en-pt, pt-en")])
def test_an_unknown_model_is_told_what_there_is(catalog: Catalog[Served], name: str, available: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        catalog.find(name, field="name")
    assert caught.value.metadata == {"model": name, "available": available}
    assert caught.value.field == "name"
    with pytest.raises(ModelNotFound):
        catalog.route(name, "en", "pt")


@pytest.mark.parametrize(
    ("source", "target", "model"),
    [
        ("", "", EN_PT),  # the first that translates
        ("en", "pt", EN_PT),
        ("en-GB", "pt-PT", EN_PT),
        ("pt", "en", PT_EN),
        ("PT", "", PT_EN),
        ("", "en", PT_EN),  # of those that read one language
        ("de", "fr", MANY),
        ("en", "de", MANY),
    ],
)
def test_without_a_name_the_languages_say_which(source: str, target: str, model: Served) -> None:
    assert ALL.route("", source, target) is model


def test_a_model_that_has_stopped_is_passed_over_where_another_has_the_languages() -> None:
    stopped, english = replace(EN_PT, open=False), served("en-many", "en", "pt de")
    catalog = Catalog([stopped, english, PT_EN])
    assert catalog.route("", "en", "pt") is catalog.route("", "", "") is english
    assert catalog.route("en-pt", "en", "pt") is stopped  # a name says which
    assert Catalog([stopped, PT_EN]).route("", "en", "pt") is stopped  # it tells why it does not
    way = Catalog([replace(PT_EN, open=False), served("pt-de", "pt", "de en"), MANY]).pivot("pt", "fr")
    assert way is not None and (way.first.model.name, way.second) == ("pt-de", MANY)


def test_a_name_goes_before_languages_and_what_the_model_lacks_is_its_own_affair() -> None:
    assert ALL.route("many", "en", "pt") is MANY
    assert ALL.route("vectors", "en", "pt") is VECTORS
    assert ONE.route("", "de", "fr") is EN_PT
    assert Catalog([VECTORS]).route("", "en", "pt") is VECTORS


def test_a_way_through_a_third_language_is_found_where_no_model_has_both() -> None:
    way = ALL.pivot("pt-BR", "de")
    assert way is not None and (way.first, way.between, way.second) == (PT_EN, "en", MANY)
    back = ALL.pivot("fr", "pt")
    assert back is not None and (back.first, back.between, back.second) == (MANY, "en", EN_PT)
    assert ALL.pivot("en", "pt") is None  # one has both
    assert ALL.pivot("ja", "pt") is None and ALL.pivot("pt", "ja") is None and ALL.pivot("", "pt") is None


@pytest.mark.parametrize(
    ("source", "target", "field", "supported", "told"),
    [
        ("ja", "en", "source_language_code", "en, pt, de, fr", 'is "ja"; the server has en, pt, de, fr'),
        ("pt", "de", "target_language_code", "en", 'is "de"; from "pt" the server has en'),
        ("fr", "pt", "target_language_code", "en, de, fr", 'is "pt"; from "fr" the server has en, de, fr'),
        ("de", "", "target_language_code", "en, de, fr", 'is ""; from "de" the server has en, de, fr'),
    ],
)
def test_a_pair_that_no_model_has_is_told_what_there_is(
    source: str, target: str, field: str, supported: str, told: str
) -> None:
    with pytest.raises(LanguageNotSupported, match=told) as caught:
        ALL.route("", source, target)
    assert caught.value.field == field
    assert caught.value.metadata == {
        "language_code": source if field.startswith("source") else target,
        "supported": supported,
    }


def test_a_language_that_nobody_named_at_an_export_has_a_way_out() -> None:
    catalog = Catalog([served("t5", "und", "und"), EN_PT])
    assert catalog.route("", "", "").model.name == "t5"
    with pytest.raises(LanguageNotSupported, match=r"has und, en; und is unknown: .* again with --source-language$"):
        catalog.route("", "ja", "")


def test_of_many_names_the_nearest_are_told() -> None:
    tags = ("por-BR", "pt-BR", "pt", "zh-Hant", "zh-Hans", "en", "fr", "de", "it")
    with pytest.raises(LanguageNotSupported, match=r"; the nearest are pt-BR$"):
        raise LanguageNotSupported("target_language_code", "pt_BR", tags)
    with pytest.raises(LanguageNotSupported, match=r"; the nearest are zh-Hant, zh-Hans$"):
        raise LanguageNotSupported("target_language_code", "zh", tags)
    models = [served(f"model-{number}", "en", "pt") for number in range(9)]
    with pytest.raises(ModelNotFound, match="; the nearest are model-"):
        Catalog(models).find("modell-3")
