"""Texts of targets, token by token: against decoded texts, and transformers' criterion for stop strings."""

import random
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.stopping_criteria import StopStringCriteria

from models.tokenizers.byte_tokenizer import ByteSpec, ByteTokenizer
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from models.tokenizers.target_texts import Completions, Pieces, StopStrings
from models.tokenizers.tokenizer import Tokenizer
from tests.checkpoints import END, UNKNOWN, ZOO, flores, sentencepiece_model, vocabulary, write_json, write_tokenizer
from tests.oracles import tokenizer_of

PAD = 32000
SPEC = SentencePieceSpec(end_id=END, unknown_id=UNKNOWN, hidden_ids=(END, PAD))
SCRIPTS = "สวัสดีชาวโลก السلام عليكم नमस्ते दुनिया \U0001f469\u200d\U0001f52c x\u0301 é 漢字"


@cache
def pieces_of_zoo() -> Pieces:
    return Pieces(SentencePiecePair.load(ZOO, SPEC).pieces)


@pytest.fixture(scope="module")
def by_bytes(tmp_path_factory: pytest.TempPathFactory) -> SentencePiecePair:
    folder, model = tmp_path_factory.mktemp("bytes"), sentencepiece_model(1, byte_fallback=True)
    write_tokenizer(folder, model, model, separate=False)
    pad = vocabulary(model)["<pad>"]
    return SentencePiecePair.load(folder, SentencePieceSpec(end_id=END, unknown_id=UNKNOWN, hidden_ids=(END, pad)))


@pytest.fixture(scope="module")
def by_both(tmp_path_factory: pytest.TempPathFactory) -> SentencePiecePair:
    """One vocabulary of the pieces of two models, as OPUS-MT has it: the target's lacks some of them."""
    folder = tmp_path_factory.mktemp("both")
    source, target = sentencepiece_model(0), sentencepiece_model(1)
    write_tokenizer(folder, source, target, separate=False)
    together = dict.fromkeys((*vocabulary(source), *vocabulary(target)))
    write_json(folder / "vocab.json", {piece: place for place, piece in enumerate(together)})
    return SentencePiecePair.load(folder, SentencePieceSpec(end_id=END, unknown_id=UNKNOWN, hidden_ids=(END,)))


def test_pieces_that_the_model_of_targets_lacks_are_their_text(by_both: SentencePiecePair) -> None:
    pieces = by_both.pieces()
    texts = [by_both.decode([token_id]) for token_id in range(len(pieces))]
    assert [piece.decode().strip() for piece in pieces] == texts
    assert sum("\u2047" in text for text in texts) == 1  # the unknown token alone


@pytest.mark.parametrize("name", ["zoo", "by_bytes", "bytes"])
def test_pieces_put_together_are_the_text(name: str, by_bytes: SentencePiecePair) -> None:
    tokenizers: dict[str, Tokenizer] = {
        "zoo": SentencePiecePair.load(ZOO, SPEC),
        "by_bytes": by_bytes,
        "bytes": ByteTokenizer(ByteSpec()),
    }
    tokenizer = tokenizers[name]
    pieces = Pieces(tokenizer.pieces)
    for text in (SCRIPTS, *(portuguese for _, portuguese in flores()[:50])):
        ids = [*tokenizer.encode_target(text), END]
        assert pieces.text(ids).decode().strip() == tokenizer.decode(ids)
        assert pieces.last(ids, 7) == pieces.text(ids)[-7:]
    assert pieces.text([-1, 10**6]) == b""


@pytest.mark.parametrize("strings", [["s"], [" de", "ão "], ["ência", "a cidade", "e, e"]], ids=str)
def test_stop_strings_end_what_they_end_in_transformers(strings: list[str]) -> None:
    tokenizer, chance = tokenizer_of(ZOO), random.Random(str(strings))
    ours, theirs = StopStrings(strings, pieces_of_zoo()), StopStringCriteria(tokenizer, strings)
    # A space alone is none for transformers: its tokenizer strips what ends with one.
    able = [token for token in range(2, PAD) if pieces_of_zoo().text([token]) != b" "]
    wordy = [
        token for token in able if any(piece in pieces_of_zoo().text([token]) for piece in (b"de", b"\xc3\xaa", b"cia"))
    ]
    found = 0
    for _, portuguese in flores()[:60]:
        ids = [token for token in tokenizer(portuguese).input_ids if token in able]
        ids += chance.choices(able, k=5) + chance.choices(wordy, k=5)
        expected = [bool(theirs(torch.tensor([ids[:end]]), None)) for end in range(1, len(ids) + 1)]
        assert [ours.ended_by(ids[:end]) for end in range(1, len(ids) + 1)] == expected
        found += sum(expected)
    assert found > 10


@given(data=st.data())
def test_completions_are_all_tokens_with_which_a_text_would_be_there(data: st.DataObject) -> None:
    """However it is written: against every token of a small vocabulary."""
    chosen = st.sampled_from([b"", b"a", b"b", b"ab", b" a", b" ", b"ba", b" ab", b"\xc3", b"\xa9", b"\xc3\xa9", b"c"])
    vocabulary = data.draw(st.lists(chosen, min_size=1, max_size=8))
    pieces = Pieces(lambda: vocabulary)
    texts = data.draw(st.lists(st.sampled_from(["a", "ab", "b a", "é", "aé", "bab", " a"]), min_size=1, max_size=3))
    completions = Completions(texts, pieces)
    ids = data.draw(st.lists(st.integers(0, len(vocabulary) - 1), max_size=8))
    found = {*completions.anywhere.tolist(), *(one for some in completions.after(ids) for one in some.tolist())}
    before = pieces.text(ids)
    counts = {text: before.count(text.encode()) for text in texts}
    if not any(counts.values()):  # as in a target that was watched from its beginning
        would = {one for one, piece in enumerate(vocabulary) if any(text.encode() in before + piece for text in texts)}
        assert found == would
