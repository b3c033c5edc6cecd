"""Tokenizers that transformers has in Python alone, against those: M2M100's, PLBart's, FSMT's, Blenderbot-small's."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
from transformers.models.plbart.tokenization_plbart import FAIRSEQ_LANGUAGE_CODES_MAP

from models.checkpoint.contents import CheckpointError, write_made
from models.checkpoint.tokenizers.found import FoundTokenizer, read_tokenizer
from models.tokenizers.moses_bpe import MosesBpe
from models.tokenizers.spec import open_tokenizer
from models.tokenizers.tokenizer import NOWHERE, Tokenizer, TokenizerError
from tests.models.tokenizers.test_tokenizer_json import PAGE, SCRIPTS, check_stream, sentencepieces, texts


def m2m100(folder: Path) -> None:
    """As facebook/m2m100_418M lies on the Hub: the vocabulary is not in the order of SentencePiece's."""
    sentencepieces(folder, "sentencepiece.bpe.model", tokenizer_class="M2M100Tokenizer")
    lines = (folder / "pieces.vocab").read_text(encoding="utf-8").splitlines()
    pieces = [line.split("\t")[0] for line in lines]
    known = sorted(set(pieces[:-20]) - {"<pad>", "</s>", "<unk>"})  # the last are unknown to the model
    vocabulary = {piece: index for index, piece in enumerate(("<s>", "<pad>", "</s>", "<unk>", *known))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    languages = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": languages}))


def fsmt(folder: Path, languages: tuple[str, str] = ("en", "de"), **configuration: object) -> None:
    """As facebook/wmt19-en-de lies on the Hub. Some results of merges, and rare characters, are in no vocabulary."""
    from sacremoses import MosesTokenizer  # takes a second, which each process that collects tests would spend

    moses = MosesTokenizer("en")
    words = [" ".join(moses.tokenize(text, aggressive_dash_splits=True)) for text in [*PAGE, *SCRIPTS[:12]]]
    trained = tokenizers.Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trained.train_from_iterator(words, trainers.BpeTrainer(vocab_size=700, end_of_word_suffix="</w>"))
    saved = json.loads(trained.to_str())["model"]
    merges = "".join(f"{first} {second} {100 - index}\n" for index, (first, second) in enumerate(saved["merges"]))
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    chance = random.Random(3)
    for side in ("src", "tgt"):
        pieces = chance.sample(sorted(saved["vocab"]), len(saved["vocab"]) - 40)
        ids = {piece: index for index, piece in enumerate(("<s>", "<pad>", "</s>", "<unk>", *pieces))}
        (folder / f"vocab-{side}.json").write_text(json.dumps(ids), encoding="utf-8")
    said = {"tokenizer_class": "FSMTTokenizer", "langs": list(languages), **configuration}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))


def fsmt_lower(folder: Path) -> None:
    fsmt(folder, ("fr", "fi"), do_lower_case=True)


def blenderbot_small(folder: Path, **configuration: object) -> None:
    """As facebook/blenderbot_small-90M lies on the Hub. Rare characters and some pieces are in no vocabulary."""
    trained = tokenizers.Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    trained.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    page = [text.lower() for text in [*PAGE, *SCRIPTS[:12]]]
    trained.train_from_iterator(page, trainers.BpeTrainer(vocab_size=700, end_of_word_suffix="</w>"))
    saved = json.loads(trained.to_str())["model"]
    merges = "".join(f"{first} {second}\n" for first, second in saved["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
    pieces = [
        piece.removesuffix("</w>") if piece.endswith("</w>") else f"{piece}@@"
        for piece in random.Random(3).sample(sorted(saved["vocab"]), len(saved["vocab"]) - 40)
    ]
    control = ("__null__", "__start__", "__end__", "__unk__", "__newln__")
    (folder / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate([*control, *pieces])}))
    said = {"tokenizer_class": "BlenderbotSmallTokenizer", **configuration}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))


def blenderbot_small_cleaned(folder: Path) -> None:
    blenderbot_small(folder, clean_up_tokenization_spaces=True)


def plbart(folder: Path, codes: str = "base") -> None:
    """As uclanlp/plbart-base lies on the Hub."""
    sentencepieces(folder, "sentencepiece.bpe.model", tokenizer_class="PLBartTokenizer", language_codes=codes)


def plbart_multi(folder: Path) -> None:
    plbart(folder, "multi")


@pytest.fixture(
    scope="module",
    params=[m2m100, plbart, plbart_multi, fsmt, fsmt_lower, blenderbot_small, blenderbot_small_cleaned],
    ids=lambda write: write.__name__,
)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp(request.param.__name__)
    request.param(made)
    return made


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def found(folder: Path) -> FoundTokenizer:
    return read_tokenizer(folder)


@pytest.fixture(scope="module")
def ours(folder: Path, found: FoundTokenizer) -> Tokenizer:
    spec = type(found.spec).model_validate_json(found.spec.model_dump_json())
    assert set(spec.files) == {*found.files, *found.made_files}
    write_made(folder, found.made_files)
    return open_tokenizer(folder, spec)


def test_ids_are_those_of_transformers(ours: Tokenizer, theirs: Any) -> None:
    asked = [
        *texts(),
        *PAGE,
        "",
        " ",
        "a  b\tc\n",
        "“O’Neil” said: it’s 3.5% — «yes»…",
        "x & y < z | [1] '2' \"3\" e-mail",
    ]
    expected = [theirs(text).input_ids for text in asked]
    assert [ours.encode(text) for text in asked] == expected
    ids = [token_id for of_text in expected for token_id in of_text]
    assert len(set(ids)) > 200 and theirs.unk_token_id in ids


def test_texts_are_those_of_transformers(ours: Tokenizer, theirs: Any, found: FoundTokenizer) -> None:
    chance = random.Random(5)
    asked = [ours.encode_target(text) for text in texts(300)]
    asked += [[chance.randrange(found.largest_target_id + 1) for _ in range(chance.randint(0, 20))] for _ in range(300)]
    assert [ours.decode(ids) for ids in asked] == [theirs.decode(ids, skip_special_tokens=True) for ids in asked]


def test_control_tokens_in_a_text_are_none(ours: Tokenizer, theirs: Any) -> None:
    special = set(theirs.all_special_ids) - {theirs.unk_token_id}
    tokens = set(theirs.all_special_tokens)  # PLBart's <mask> is an unknown one where no mask was trained
    for token in (token for token in tokens if theirs.convert_tokens_to_ids(token) in special):
        assert special & set(theirs(f"a {token} b", add_special_tokens=False).input_ids)
        assert not special & set(ours.encode_target(f"a {token} b"))


def test_spans_are_where_tokens_stand(ours: Tokenizer) -> None:
    for text in PAGE[:50]:
        ids, spans = ours.encode(text), ours.spans(text)
        assert len(ids) == len(spans)
        told = [span for span in spans if span != NOWHERE]
        assert told == sorted(told) and sum(end - begin for begin, end in told) > 0.9 * len("".join(text.split()))


@given(data=st.data())
def test_any_tokens_stream_to_their_text(ours: Tokenizer, data: st.DataObject) -> None:
    check_stream(ours, data)


@given(text=st.text(max_size=30))
def test_any_text_has_the_ids_of_transformers(ours: Tokenizer, theirs: Any, text: str) -> None:
    if not any(token in text for token in theirs.all_special_tokens):
        assert ours.encode(text) == theirs(text).input_ids


def test_a_source_has_the_token_of_its_language(tmp_path: Path) -> None:
    m2m100(tmp_path)
    found = read_tokenizer(tmp_path)
    ours = open_tokenizer(tmp_path, found.spec)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, src_lang="pt")
    assert ours.encode("O gato dorme", source_language="pt") == theirs("O gato dorme").input_ids
    assert ours.encode("O gato dorme") == transformers.AutoTokenizer.from_pretrained(tmp_path)("O gato dorme").input_ids
    assert len(found.languages) == 100
    assert {tag: found.languages[tag] for tag in ("pt", "nso")} == {
        "pt": theirs.get_lang_id("pt"),
        "nso": theirs.get_lang_id("ns"),
    }


@pytest.mark.parametrize("codes", ["base", "multi"])
def test_programming_languages_stand_behind_a_source(codes: str, tmp_path: Path) -> None:
    plbart(tmp_path, codes)
    found = read_tokenizer(tmp_path)
    write_made(tmp_path, found.made_files)
    ours = open_tokenizer(tmp_path, found.spec)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    names = FAIRSEQ_LANGUAGE_CODES_MAP if codes == "multi" else ("java", "python", "en_XX")
    tags = {"en_XX": "en", "javascript": "x-js"}
    assert found.languages.keys() == {tags.get(name, f"x-{name}") for name in names}
    for name in names:
        theirs.src_lang, tag = name, tags.get(name, f"x-{name}")
        for text in ("int f ( ) { return 1 ; }", "", "def f(x): NEW_LINE INDENT return x"):
            assert ours.encode(text, source_language=tag) == theirs(text).input_ids
            assert len(ours.spans(text, source_language=tag)) == len(theirs(text).input_ids)
        assert found.languages[tag] == theirs.lang_code_to_id[f"__{name}__"]


@pytest.mark.parametrize("write", [m2m100, plbart, blenderbot_small])
def test_tokens_that_were_added_are_refused(write: Any, tmp_path: Path) -> None:
    write(tmp_path)
    read_tokenizer(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs.add_tokens(["NEW_LINE"])
    theirs.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="has 1 tokens that were added, the first 'NEW_LINE'"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize(("write", "token"), [(m2m100, "eos_token"), (m2m100, "unk_token"), (plbart, "eos_token")])
def test_a_tokenizer_without_a_control_token_is_refused(write: Any, token: str, value: Any, tmp_path: Path) -> None:
    write(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {token: value}))
    with pytest.raises(CheckpointError, match=rf"tokenizer_config.json: {token} is \S+; \w+Tokenizer needs one"):
        read_tokenizer(tmp_path)


def test_targets_that_sacremoses_writes_backwards_are_refused(tmp_path: Path) -> None:
    fsmt(tmp_path, ("en", "cs"))
    with pytest.raises(CheckpointError, match="targets are in 'cs', whose words sacremoses does not join"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["{}", '{"<unk>": 3, "a": "b"}', '{"<unk>": 3, "a": [1]}', "[1]", "{", '{"a": -1}'])
@pytest.mark.parametrize(
    ("write", "name"),
    [(m2m100, "vocab.json"), (fsmt, "vocab-src.json"), (fsmt, "vocab-tgt.json"), (blenderbot_small, "vocab.json")],
)
def test_a_vocabulary_that_is_none_is_refused(write: Any, name: str, content: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError) as refused:
        read_tokenizer(tmp_path)
    assert str(tmp_path) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["vocab-src.json", "vocab-tgt.json", "merges.txt"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    fsmt(tmp_path)
    spec = read_tokenizer(tmp_path).spec
    (tmp_path / name).unlink()
    with pytest.raises(TokenizerError, match=f"{name} cannot be read"):
        open_tokenizer(tmp_path, spec)


def test_without_sacremoses_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsmt(tmp_path)
    spec = read_tokenizer(tmp_path).spec
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(TokenizerError, match="pip install 'dragoman\\[moses\\]'"):
        open_tokenizer(tmp_path, spec)


def test_lines_that_are_no_pairs_merge_nothing(tmp_path: Path) -> None:
    fsmt(tmp_path)
    spec = read_tokenizer(tmp_path).spec
    (tmp_path / "merges.txt").write_text("\nt\nt h 1\n", encoding="utf-8")
    ours = open_tokenizer(tmp_path, spec)
    assert isinstance(ours, MosesBpe) and ours._split("the") == ("th", "e</w>")
