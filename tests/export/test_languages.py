"""export.languages: what a package says of its languages where nobody has named them."""

from dataclasses import replace
from pathlib import Path

import pytest

from export.command.arguments import parse
from export.inputs import InputError, adapt
from export.languages import advice
from export.sources import Fetched
from export.sources.card import card_languages
from models.checkpoint import load_checkpoint
from tests.checkpoints import edit_json
from tests.models.families import T5_LIKE, VOCABULARY, write_family

CARDS = {
    "one": ("language: en", ("en",)),
    "no boolean": ("license: mit\nlanguage: no  # Norwegian", ("no",)),
    "list": ('language:\n- "en"\n  - pt-BR\ntags:\n- translation', ("en", "pt-BR")),
    "in brackets": ("language: [en, 'fr']", ("en", "fr")),
    "brackets of several lines": ("language: [en,\n  fr]", ()),
    "something else": ("language:\n- en\n- multilingual", ()),
    "programs": ("language: code", ()),
    "nothing": ("license: mit", ()),
    "twice": ("language: en\nlanguage: fr", ()),
    "empty": ("language:", ()),
}


@pytest.mark.parametrize(("head", "found"), CARDS.values(), ids=CARDS)
def test_languages_of_a_card(head: str, found: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"---\n{head}\n---\nlanguage: de\n", encoding="utf-8")
    assert card_languages(tmp_path) == found


@pytest.mark.parametrize("content", [b"", b"# A model\nlanguage: en\n", b"---\n\xff\xfe", b"\x00"])
def test_a_card_may_say_nothing(content: bytes, tmp_path: Path) -> None:
    assert card_languages(tmp_path) == ()
    (tmp_path / "README.md").write_bytes(content)
    assert card_languages(tmp_path) == ()


@pytest.fixture
def fetched(tmp_path: Path) -> Fetched:
    """A T5, whose tokens name no language."""
    from tests.export.test_families_exported import write_tokenizer

    write_tokenizer(write_family(tmp_path, T5_LIKE["t5"]), VOCABULARY)
    return Fetched(tmp_path, "t5")


def test_a_model_may_do_without_languages(fetched: Fetched) -> None:
    loaded, options = load_checkpoint(fetched.folder), parse([str(fetched.folder)])
    for card, tag in (("", "und"), ("language: [en, fr]", "und"), ("language: pt", "pt")):
        (fetched.folder / "README.md").write_text(f"---\n{card}\n---\n", encoding="utf-8")
        adapted = adapt(loaded, fetched, options)
        assert adapted.source_languages == adapted.target_languages == (tag,)
        assert advice(loaded, fetched, options)[0].startswith(f"languages: {tag} on both sides; ")
    named = parse([str(fetched.folder), "--source-language=en", "--target-language=de"])
    assert adapt(loaded, fetched, named).target_languages == ("de",)
    assert advice(loaded, fetched, named) == []


def test_half_a_pair_and_a_translation_model_without_languages_are_refused(fetched: Fetched) -> None:
    loaded = load_checkpoint(fetched.folder)
    with pytest.raises(InputError, match="does not say its target language"):
        adapt(loaded, fetched, parse([str(fetched.folder), "--source-language=en"]))
    with pytest.raises(InputError, match="does not say its source language"):
        adapt(replace(loaded, needs_languages=True), fetched, parse([str(fetched.folder)]))


def test_tasks_of_the_configuration_are_named(fetched: Fetched) -> None:
    tasks = {"summarization": {"prefix": "summarize: "}, "other": {"num_beams": 4}, "odd": None}
    edit_json(fetched.folder / "config.json", task_specific_params=tasks)
    loaded, folder = load_checkpoint(fetched.folder), str(fetched.folder)
    assert advice(loaded, fetched, parse([folder]))[1:] == ["no task: config.json has --task 'summarize: '"]
    assert advice(loaded, fetched, parse([folder, "--task=summarize: "]))[1:] == []


def test_a_language_is_named_once(fetched: Fetched) -> None:
    """Of two, each request would have to name one."""
    for again in ("pt", "PT"):
        options = parse(
            [str(fetched.folder), "--source-language=en", "--target-language=pt", f"--target-language={again}"]
        )
        with pytest.raises(InputError, match="the target language 'pt' is named 2 times; once is enough"):
            adapt(load_checkpoint(fetched.folder), fetched, options)
