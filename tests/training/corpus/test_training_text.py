"""From text files to batches."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.checkpoint.tokenizers.marian import read_tokenizer_config, tokenizer_spec
from models.tokenizers.sentencepiece_pair import load_vocabulary
from models.transformer import Transformer
from tests.checkpoints import flores
from tests.models.test_transformer import config
from training.config import Data, ParallelText, TransformerShape, Vocabulary
from training.data.batches import BatchOrder, Position, in_order, make_batch, plan, target_tokens
from training.data.text import Codec, Corpus, Sentences, TextPair, encode, read_pair
from training.data.vocabulary import piece_ids, train_model, train_vocabulary
from training.errors import TrainingError
from training.objective.objective import Translation
from training.start import new_config


def corpus(*lengths: tuple[int, int]) -> Corpus:
    """Pairs of so many tokens. The tokens count up, so that none is twice in it."""
    source, target = zip(*lengths, strict=True)
    return Corpus(sentences(source), sentences(target))


def sentences(lengths: Sequence[int]) -> Sentences:
    return Sentences(np.arange(sum(lengths), dtype=np.int32), np.cumsum(lengths))


PAIRS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=60)


@given(lengths=PAIRS, tokens=st.integers(20, 90), seed=st.integers(0, 9))
def test_a_plan_has_every_pair_once_and_no_batch_too_large(
    lengths: list[tuple[int, int]], tokens: int, seed: int
) -> None:
    text = corpus(*lengths)
    batches = plan(text, tokens, np.random.default_rng(seed).permutation(len(text)))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for rows in batches:
        for side in range(2):
            assert 0 < len(rows) * max(lengths[row][side] for row in rows) <= tokens


def test_a_batch_that_no_sentence_fits_into_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"batches\.tokens is 8, but a sentence has 9 tokens"):
        list(in_order(corpus((3, 9)), 8))


def drawn(order: BatchOrder, count: int) -> list[list[int]]:
    return [rows.tolist() for rows in order.take(count)]


def test_epochs_differ_and_a_seed_repeats_them() -> None:
    text = corpus(*((3, 3) for _ in range(40)))
    epochs = [
        sorted(row for rows in drawn(BatchOrder(text, 12, 1, Position(epoch)), 10) for row in rows)
        for epoch in range(2)
    ]
    assert epochs == [list(range(40))] * 2
    first = drawn(BatchOrder(text, 12, 1, Position()), 25)
    assert drawn(BatchOrder(text, 12, 1, Position()), 25) == first
    assert drawn(BatchOrder(text, 12, 2, Position()), 25) != first
    assert first[:10] != first[10:20]


@pytest.mark.parametrize("taken", [0, 3, 10, 14])
def test_it_goes_on_where_it_was(taken: int) -> None:
    text = corpus(*((3, 3) for _ in range(40)))
    whole = drawn(BatchOrder(text, 12, 1, Position()), 20)
    order = BatchOrder(text, 12, 1, Position())
    order.take(taken)
    assert drawn(BatchOrder(text, 12, 1, order.position), 20 - taken) == whole[taken:]


def test_a_batch_is_padded_and_shifted() -> None:
    shape = config(pad_id=99, decoder_start_id=7)
    batch = make_batch(corpus((2, 1), (1, 3)), np.array([1, 0]), shape)
    assert batch.source_ids.tolist() == [[2, 99], [0, 1]]
    assert batch.source_lengths.tolist() == [1, 2]
    assert batch.labels.tolist() == [[1, 2, 3], [0, 99, 99]]
    assert batch.inputs.tolist() == [[7, 1, 2], [7, 0, 99]]
    assert batch.is_token.tolist() == [[True, True, True], [True, False, False]]
    assert target_tokens(corpus((2, 1), (1, 3)), [np.array([1]), np.array([0])]) == 4 == batch.is_token.sum()


def test_padding_changes_no_loss() -> None:
    """The sentences of a batch are learnt from as if each were alone."""
    torch.manual_seed(0)
    text, shape = corpus((9, 4), (2, 11), (5, 5)), config()
    objective = Translation(Transformer(shape).eval(), 0.1)
    whole, _ = objective(make_batch(text, np.arange(3), shape))
    alone = sum(objective(make_batch(text, np.array([row]), shape))[0] for row in range(3))
    torch.testing.assert_close(whole, alone)


def files(folder: Path, source: str, target: str) -> ParallelText:
    (folder / "x.en").write_text(source, encoding="utf-8")
    (folder / "x.pt").write_text(target, encoding="utf-8")
    return ParallelText(source=folder / "x.en", target=folder / "x.pt")


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\n", "a\n", "x.en has 2 lines and {folder}/x.pt has 1; line n of one must be"),
        ("", "", "x.en is empty; give at least one sentence"),
        ("a\n\nc\n", "a\nb\nc\n", "x.en, line 2 is empty; remove the line from both files"),
        ("a\nb\n", "a\n  \n", "x.pt, line 2 is empty"),
    ],
)
def test_text_that_is_not_aligned_is_refused(source: str, target: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as refused:
        read_pair(files(tmp_path, source, target))
    assert message.format(folder=tmp_path) in str(refused.value)


def test_characters_inside_a_sentence_end_no_line(tmp_path: Path) -> None:
    pair = read_pair(files(tmp_path, "one\x85two\u2028three\nfour", "um\ndois\n"))
    assert pair.source == ["one\x85two\u2028three", "four"]


def test_a_mark_of_byte_order_is_no_part_of_the_first_sentence(tmp_path: Path) -> None:
    pair = read_pair(files(tmp_path, "\ufeffone\n", "\ufeffum\n"))
    assert (pair.source, pair.target) == (["one"], ["um"])


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    text = files(tmp_path, "a\n", "b\n")
    text.target.write_bytes(b"caf\xe9\n")
    with pytest.raises(TrainingError, match=r"x\.pt is not UTF-8"):
        read_pair(text)
    text.target.write_text("cat\n", encoding="utf-16-le")  # which is UTF-8, letter by letter
    with pytest.raises(TrainingError, match=r"x\.pt: byte 2 \(0x00\) is in no text; if it is UTF-16, convert it"):
        read_pair(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"nowhere\.en cannot be read: No such file"):
        read_pair(ParallelText(source=tmp_path / "nowhere.en", target=tmp_path / "x.pt"))


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    """A vocabulary of FLORES, English and Portuguese."""
    folder = tmp_path_factory.mktemp("codec") / "vocabulary"
    settings = Vocabulary(source_language="en", target_language="pt-BR", size=400, character_coverage=0.999)
    train_vocabulary(folder, settings, (text for pair in flores() for text in pair), seed=1)

    shape = new_config(TransformerShape(), load_vocabulary(folder / "vocab.json"))
    assert (shape.source_vocab_size, shape.pad_id, shape.end_id) == (401, 400, 0)
    return Codec(folder, tokenizer_spec(folder, read_tokenizer_config(folder), shape))


def text_pair(*pairs: tuple[str, str]) -> TextPair:
    return TextPair(ParallelText(source=Path("x.en"), target=Path("x.pt")), *zip(*pairs, strict=True))


def data(**changes: Any) -> Data:
    files = ParallelText(source=Path("x.en"), target=Path("x.pt"))
    return Data(train=(files,), validation=files, **changes)


def test_both_sides_decode_to_what_they_were(codec: Codec) -> None:
    pairs = flores()[:50]
    text = encode([text_pair(*pairs)], codec, data(max_unknown=1.0, max_tokens=512), drop_long=False)
    assert len(text) == 50
    assert text.source[3][-1] == text.target[3][-1] == 0
    decoded = [codec.source.decode(text.target[row].tolist()) for row in range(50)]
    known = [row for row in range(50) if codec.unknown_id not in text.target[row]]
    assert len(known) > 40
    assert [decoded[row] for row in known] == [normalised(pairs[row][1], codec) for row in known]


def normalised(text: str, codec: Codec) -> str:
    """As the vocabulary writes it: SentencePiece's NFKC, and what replaces characters that it lacks."""
    replaced = "".join(codec.target.spec.normalization.get(character, character) for character in text)
    return " ".join(unicodedata.normalize("NFKC", replaced).split())


def test_quotes_that_the_vocabulary_lacks_are_replaced_on_both_sides(codec: Codec) -> None:
    text = encode([text_pair(("He said ‘no’.", "Disse ‹não›."))], codec, data(), drop_long=False)
    assert codec.source.decode(text.source[0].tolist()) == "He said 'no'."
    assert codec.source.decode(text.target[0].tolist()) == "Disse 'não'."


def test_a_long_line_is_refused_or_dropped(codec: Codec) -> None:
    pairs = [text_pair(("The end.", "O fim."), ("The end. " * 9, "O fim."))]
    with pytest.raises(TrainingError) as refused:
        encode(pairs, codec, data(max_tokens=20), drop_long=False)
    tokens = len(codec.source.encode("The end. " * 9))
    assert str(refused.value).startswith(f"x.en, line 2 has {tokens} tokens; data.max_tokens is 20. Raise it, shorten")
    kept = encode(pairs, codec, data(max_tokens=20), drop_long=True)
    assert (len(kept), kept.dropped) == (1, 1)
    with pytest.raises(TrainingError, match=r"every pair is longer than data.max_tokens = 2"):
        encode(pairs, codec, data(max_tokens=2), drop_long=True)


@pytest.mark.parametrize("validates", [True, False])
def test_only_training_pairs_are_said_to_be_droppable(codec: Codec, validates: bool) -> None:
    files = ParallelText(source=Path("valid.en"), target=Path("valid.pt"))
    settings = data(max_tokens=20).model_copy(update={"validation": files} if validates else {})
    with pytest.raises(TrainingError, match=r"valid\.en, line 1 has \d+ tokens") as refused:
        encode([TextPair(files, ["The end. " * 9], ["O fim."])], codec, settings, drop_long=False)
    assert str(refused.value).endswith("or remove it") == validates
    assert ("data.too_long" in str(refused.value)) != validates


def test_text_of_another_script_is_refused(codec: Codec) -> None:
    with pytest.raises(TrainingError, match=r"x\.en: the vocabulary does not know \d+\.\d% of the tokens;.* мир"):
        encode([text_pair(("Привет, мир.", "O fim."))], codec, data(), drop_long=False)


def test_two_vocabularies_are_refused(tmp_path: Path, codec: Codec) -> None:
    spec = codec.source.spec.model_copy(update={"target_vocabulary": "target_vocab.json"})
    with pytest.raises(TrainingError, match="has a vocabulary for each side; training supports one for both"):
        Codec(tmp_path, spec)


def test_a_vocabulary_is_repeatable() -> None:
    settings = Vocabulary(source_language="en", target_language="pt", size=200, character_coverage=0.98)
    models = [train_model(settings, (english for english, _ in flores()), seed=1) for _ in range(2)]
    ids = piece_ids(models[0])
    assert ids == piece_ids(models[1])
    assert (ids["</s>"], ids["<unk>"], ids["<pad>"]) == (0, 1, 200)


def test_a_vocabulary_larger_than_its_text_is_refused() -> None:
    settings = Vocabulary(source_language="en", target_language="pt", size=5000)
    with pytest.raises(TrainingError, match=r"of 5000 pieces cannot be trained: Vocabulary size too high \(5000\)"):
        train_model(settings, iter(["Too little text."]), seed=1)
