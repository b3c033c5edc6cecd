"""Bytes as tokens, against transformers."""

import random

from transformers import ByT5Tokenizer

from models.tokenizers.byte_tokenizer import ByteSpec, ByteTokenizer
from models.tokenizers.tokenizer import TextStream
from tests.models.tokenizers.test_tokenizer_json import SCRIPTS, texts

OURS, THEIRS = ByteTokenizer(ByteSpec()), ByT5Tokenizer()


def test_ids_and_texts_are_those_of_transformers() -> None:
    for text in (*SCRIPTS, *texts()):
        assert OURS.encode(text) == THEIRS(text).input_ids
        assert OURS.decode(OURS.encode(text)) == text
    chance = random.Random(3)
    for _ in range(500):
        ids = [chance.randrange(259) for _ in range(chance.randint(0, 12))]
        assert OURS.decode(ids) == THEIRS.decode(ids, skip_special_tokens=True)


def test_control_tokens_in_a_text_are_text() -> None:
    assert OURS.decode(OURS.encode("a </s> <pad>")) == "a </s> <pad>"


def test_half_a_character_is_not_sent() -> None:
    for text in SCRIPTS:
        ids, stream = OURS.encode(text), TextStream(OURS)
        deltas = [*(stream.push([token_id]) for token_id in ids), stream.finish(ids)]
        assert "".join(deltas) == text
