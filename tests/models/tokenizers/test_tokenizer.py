"""The tokenizer gives the ids of transformers' MarianTokenizer; a stream of text never takes anything back."""

import io
import warnings
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer
from transformers import MarianTokenizer

from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from models.tokenizers.tokenizer import TextStream, TokenizerError
from models.tokenizers.typography import TYPOGRAPHY, normalization_table
from tests.checkpoints import END, UNKNOWN, ZOO, flores, sentencepiece_model, vocabulary, write_json, write_tokenizer
from tests.models.tokenizers.test_tokenizer_json import texts

PAD = 32000
SPEC = SentencePieceSpec(target_model="source.spm", end_id=END, unknown_id=UNKNOWN, hidden_ids=(END, PAD))


@pytest.fixture(scope="module")
def zoo() -> SentencePiecePair:
    """The zoo's tokenizer, as export sets it up."""
    table = normalization_table(SentencePiecePair.load(ZOO, SPEC))
    return SentencePiecePair.load(ZOO, SPEC.model_copy(update={"normalization": table}))


@pytest.fixture(scope="module")
def marian() -> MarianTokenizer:
    """The oracle."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses.")
        return MarianTokenizer.from_pretrained(ZOO)


def byte_tokenizer(folder: Path) -> SentencePiecePair:
    """Of a vocabulary that falls back to bytes."""
    model = sentencepiece_model(side=1, byte_fallback=True)
    _, size = write_tokenizer(folder, model, model, separate=False)
    return SentencePiecePair.load(folder, SentencePieceSpec(end_id=END, unknown_id=UNKNOWN, hidden_ids=(END, size - 1)))


@pytest.fixture(scope="module")
def by_bytes(tmp_path_factory: pytest.TempPathFactory) -> SentencePiecePair:
    """A tokenizer that writes rare characters as their bytes, one token each."""
    return byte_tokenizer(tmp_path_factory.mktemp("bytes"))


def byte_ids() -> list[int]:
    """Of its tokens that are bytes."""
    ids = vocabulary(sentencepiece_model(1, byte_fallback=True))
    return sorted(index for piece, index in ids.items() if "<0x" in piece)


def test_ids_are_those_of_transformers(marian: MarianTokenizer) -> None:
    plain = SentencePiecePair.load(ZOO, SPEC)
    for text in (*chain.from_iterable(flores()), *texts()):
        assert plain.encode(text) == marian(text).input_ids


def test_text_is_that_of_transformers(zoo: SentencePiecePair, marian: MarianTokenizer) -> None:
    targets = [marian(text_target=portuguese).input_ids for _, portuguese in flores()]
    targets = [token_ids for token_ids in targets if UNKNOWN not in token_ids]  # which transformers leaves out
    assert len(targets) > 900
    for token_ids in targets:
        assert zoo.decode([PAD, *token_ids]) == marian.decode(token_ids, skip_special_tokens=True)


def test_ids_of_targets_are_those_of_transformers(zoo: SentencePiecePair, marian: MarianTokenizer) -> None:
    for _, portuguese in flores():
        assert [*zoo.encode_target(portuguese), END] == marian(text_target=portuguese).input_ids
    assert zoo.encode_target("") == []


def test_decode_shows_unknown_tokens_and_skips_special_ones(zoo: SentencePiecePair) -> None:
    hello = zoo.encode("Hello")
    assert zoo.decode([PAD, *hello[:-1], UNKNOWN, END, PAD]) == "Hello ⁇"
    assert zoo.decode([]) == zoo.decode([PAD, END]) == ""


def test_typography_reads_as_ascii(zoo: SentencePiecePair) -> None:
    assert zoo.encode("“Don’t”, he said – ‘no’ …") == zoo.encode("\"Don't\", he said - 'no' ...")
    assert zoo.encode("reading the news—and news reports") == zoo.encode("reading the news - and news reports")
    assert zoo.encode("10\u00a0km\u202fon\u2009foot") == zoo.encode("10 km on foot")
    assert zoo.encode("co\u00adoperate") == zoo.encode("cooperate")


def test_no_typographic_character_is_unknown(zoo: SentencePiecePair) -> None:
    for character in TYPOGRAPHY:
        assert UNKNOWN not in zoo.encode(f"a {character} b"), f"U+{ord(character):04X}"


def test_only_what_the_vocabulary_lacks_is_replaced(zoo: SentencePiecePair) -> None:
    assert zoo.spec.normalization["’"] == "'"
    # SentencePiece's own normaliser (NFKC) knows these.
    assert not {"…", "\u00a0", "\u3000"} & zoo.spec.normalization.keys()


def test_a_vocabulary_that_knows_typography_gets_no_table(tmp_path: Path) -> None:
    assert normalization_table(byte_tokenizer(tmp_path)) == {}


def test_replacement_does_not_need_what_is_unknown_itself(tmp_path: Path) -> None:
    model = sentencepiece_model()
    ids = vocabulary(model)
    write_tokenizer(tmp_path, model, model, separate=False)
    without_quote = {piece: index for piece, index in ids.items() if '"' not in piece}
    write_json(tmp_path / "vocab.json", without_quote)
    table = normalization_table(SentencePiecePair.load(tmp_path, SPEC))
    assert "’" in table
    assert "“" not in table


def test_languages_of_a_multilingual_vocabulary_are_one_token(tmp_path: Path) -> None:
    model = sentencepiece_model()
    write_tokenizer(tmp_path, model, model, separate=False)
    ids = vocabulary(model)
    write_json(tmp_path / "vocab.json", ids | {">>fra<<": len(ids)})
    tokenizer = SentencePiecePair.load(tmp_path, SPEC)
    assert tokenizer.encode(">>fra<< The cat") == [len(ids), *tokenizer.encode("The cat")]
    assert tokenizer.encode(">>deu<< The cat")[0] != UNKNOWN
    assert tokenizer.encode("The >>fra<<") == SentencePiecePair.load(tmp_path, SPEC).encode("The >>fra<<")


def test_target_vocabulary_of_its_own(tmp_path: Path) -> None:
    source, target = sentencepiece_model(), sentencepiece_model(side=1, pieces=187)
    write_tokenizer(tmp_path, source, target, separate=True)
    spec = SentencePieceSpec(
        target_vocabulary="target_vocab.json", end_id=END, unknown_id=UNKNOWN, hidden_ids=(END, len(vocabulary(target)))
    )
    tokenizer = SentencePiecePair.load(tmp_path, spec)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses.")
        marian = MarianTokenizer.from_pretrained(tmp_path)
    for english, portuguese in flores()[:200]:
        assert tokenizer.encode(english) == marian(english).input_ids
        token_ids = [index for index in marian(text_target=portuguese).input_ids if index != UNKNOWN]
        assert tokenizer.decode(token_ids) == marian.decode(token_ids, skip_special_tokens=True)


def test_no_text_ends_itself(tmp_path: Path) -> None:
    """Control tokens may be pieces of texts: SentencePiece calls them user-defined symbols."""
    writer = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(english for english, _ in flores()),
        model_writer=writer,
        vocab_size=211,
        character_coverage=0.98,
        eos_id=END,
        unk_id=UNKNOWN,
        bos_id=-1,
        user_defined_symbols=["</s>", "<x>"],
        minloglevel=2,
    )
    write_tokenizer(tmp_path, writer.getvalue(), writer.getvalue(), separate=False)
    spec = SentencePieceSpec(end_id=END, unknown_id=UNKNOWN, hidden_ids=(END,))
    tokenizer, ids = SentencePiecePair.load(tmp_path, spec), vocabulary(writer.getvalue())
    assert tokenizer.encode("<x></s>")[-3:] == [ids["<x>"], UNKNOWN, END]
    assert tokenizer.encode_target("<x></s>")[-2:] == [ids["<x>"], UNKNOWN]


def test_longest_piece(zoo: SentencePiecePair) -> None:
    assert zoo.longest_piece == 16
    for english, _ in flores():
        assert len(english) < zoo.longest_piece * len(zoo.encode(english))


@pytest.mark.parametrize(
    "broken", [lambda _: b"", lambda _: b"not a model", lambda model: model[:1000]], ids=["empty", "other", "cut"]
)
def test_a_broken_model_is_named(tmp_path: Path, broken: Callable[[bytes], bytes]) -> None:
    write_tokenizer(tmp_path, sentencepiece_model(), sentencepiece_model(), separate=False)
    (tmp_path / "target.spm").write_bytes(broken(sentencepiece_model()))
    with pytest.raises(TokenizerError, match=r"target\.spm"):
        SentencePiecePair.load(tmp_path, SPEC.model_copy(update={"target_model": "target.spm"}))


@pytest.mark.parametrize(
    "content", ["", "{", "[1]", '{"a": "1"}', "{}", '{"a": -1}', '{"a": 4000000000}', '{"\\ud800": 1}']
)
def test_a_broken_vocabulary_is_named(tmp_path: Path, content: str) -> None:
    write_tokenizer(tmp_path, sentencepiece_model(), sentencepiece_model(), separate=False)
    (tmp_path / "vocab.json").write_text(content)
    with pytest.raises(TokenizerError, match=r"vocab\.json"):
        SentencePiecePair.load(tmp_path, SPEC)


def stream(tokenizer: SentencePiecePair, token_ids: list[int], cuts: list[int]) -> list[str]:
    """The deltas when the tokens come in pieces that end at `cuts`, and the last ones only with the end."""
    text = TextStream(tokenizer)
    bounds = sorted({0, *(cut % (len(token_ids) + 1) for cut in cuts)})
    pushed = [token_ids[start:end] for start, end in pairwise(bounds)]
    return [*map(text.push, pushed), text.finish(token_ids)]


def test_streamed_sentences_are_the_decoded_ones(zoo: SentencePiecePair) -> None:
    for _, portuguese in flores()[:200]:
        token_ids = zoo.encode(portuguese)
        deltas = stream(zoo, token_ids, list(range(len(token_ids))))
        assert "".join(deltas) == zoo.decode(token_ids)
        assert len(deltas[0]) < len(portuguese) / 2


@given(st.lists(st.integers(0, PAD), max_size=30), st.lists(st.integers(0, 99), max_size=8))
@example([13, 13, UNKNOWN, 13, END, 13], [1, 2, 3, 4, 5])
def test_any_tokens_stream_to_their_text(zoo: SentencePiecePair, token_ids: list[int], cuts: list[int]) -> None:
    assert "".join(stream(zoo, token_ids, cuts)) == zoo.decode(token_ids)


@given(text=st.text(max_size=20), cuts=st.lists(st.integers(0, 99), max_size=8))
@example(text="wait \U0001f600 for \u6f22\u5b57", cuts=list(range(40)))
def test_half_a_character_is_never_sent(by_bytes: SentencePiecePair, text: str, cuts: list[int]) -> None:
    token_ids = by_bytes.encode(text)
    whole = by_bytes.decode(token_ids)
    deltas = stream(by_bytes, token_ids, cuts)
    assert "".join(deltas) == whole
    assert "\ufffd" in whole or not any("\ufffd" in delta for delta in deltas)


def bytes_and_others() -> st.SearchStrategy[int]:
    """Asked for when a test runs: it trains a tokenizer."""
    known = byte_ids()
    return st.one_of(st.sampled_from(known), st.integers(0, known[-1] + 30))


@given(
    token_ids=st.lists(st.deferred(bytes_and_others), max_size=20),
    cuts=st.lists(st.integers(0, 99), max_size=8),
)
def test_bytes_that_are_no_text(by_bytes: SentencePiecePair, token_ids: list[int], cuts: list[int]) -> None:
    assert "".join(stream(by_bytes, token_ids, cuts)) == by_bytes.decode(token_ids)


def test_a_character_comes_with_its_last_byte(by_bytes: SentencePiecePair) -> None:
    text = TextStream(by_bytes)
    space, *emoji, _ = by_bytes.encode("\U0001f600")
    assert [text.push([token_id]) for token_id in [space, *emoji]] == ["", "", "", "", "\U0001f600"]


def test_a_space_is_not_sent_before_what_follows_it(by_bytes: SentencePiecePair) -> None:
    """What follows may be another space, of three bytes, and the end."""
    ids = vocabulary(sentencepiece_model(1, byte_fallback=True))
    token_ids = [ids[piece] for piece in ("▁a", "▁", "<0xE2>", "<0x80>", "<0x83>")]
    assert by_bytes.decode(token_ids) == "a"
    assert "".join(stream(by_bytes, token_ids, list(range(5)))) == "a"
