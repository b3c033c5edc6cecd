"""Streams of all searches: the deltas are the final text, in scripts where a token is no character, or joins others.

The real translator and engine, over a decoder that says anything.
"""

import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from engine.decoder import Ask, Found, TokenIds
from engine.logits.whole_rows import answer
from engine.observer import Unobserved
from engine.runner import Runner
from engine.targets import TargetRules
from models.decoding import Options
from models.tokenizers.byte_tokenizer import ByteSpec, ByteTokenizer
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from models.tokenizers.tokenizer import Tokenizer
from models.tokenizers.tokenizer_json import Affixes, TokenizerJson, TokenizerJsonSpec
from server.admission.permits import Admission
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.translation.answer import TextDelta
from server.translation.sharing.answer_cache import AnswerCache
from server.translation.translator import Translator
from tests.checkpoints import END, UNKNOWN, sentencepiece_model, vocabulary, write_tokenizer
from tests.fakes import CopyCache, CopyDecoder
from tests.server.translation.engine import ROUTE
from tests.serving import MODEL

WORDS = ["สวัส", "##ดี", "##\u0e48", "السلام", "##عليكم", "नम", "##स्ते", "##\u0301", "\U0001f469", "##\u200d"]
WORDS += ["##\U0001f52c", "n", "'", "##t", "n't", "'s", ".", ",", "!", "re", "do", "##\ufe0f", "漢"]


def word_pieces() -> Tokenizer:
    """Joins words to others by their marks, and cleans up spaces before punctuation."""
    ids = {word: number for number, word in enumerate(["[END]", "[UNK]", *WORDS])}
    backend = Backend(models.WordPiece(ids, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece(cleanup=False)
    return TokenizerJson(TokenizerJsonSpec(affixes=Affixes(), unknown_id=1, hidden_ids=(0,), cleans_up=True), backend)


def byte_level() -> Tokenizer:
    """A token for each byte, by the library's decoder of bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {piece: number for number, piece in enumerate(["[END]", "[UNK]", *alphabet])}
    backend = Backend(models.BPE(ids, [], unk_token="[UNK]"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return TokenizerJson(TokenizerJsonSpec(affixes=Affixes(), unknown_id=1, hidden_ids=(0,)), backend)


def byte_pieces() -> Tokenizer:
    """SentencePiece with a token for each byte of a rare character."""
    with TemporaryDirectory() as folder:
        model = sentencepiece_model(1, byte_fallback=True)
        write_tokenizer(Path(folder), model, model, separate=False)
        hidden = END, vocabulary(model)["<pad>"]
        spec = SentencePieceSpec(end_id=END, unknown_id=UNKNOWN, hidden_ids=hidden)
        return SentencePiecePair.load(Path(folder), spec)


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "word pieces": word_pieces,
    "byte pieces": byte_pieces,
    "byte level": byte_level,
    "bytes": lambda: ByteTokenizer(ByteSpec(end_id=0)),
}


@cache
def opened(name: str) -> tuple[Tokenizer, int]:
    """A tokenizer, and how many ids it has."""
    tokenizer = TOKENIZERS[name]()
    return tokenizer, len(tokenizer.pieces())


class AnyDecoder(CopyDecoder):
    """Says anything: what, depends on the target so far. It likes the bytes of characters to follow each other."""

    gives_logits = True

    def __init__(self, vocabulary_size: int, liked: tuple[int, ...], seed: int) -> None:
        super().__init__(vocabulary_size)
        self.liked, self.seed = liked, seed

    def open_cache(self, rows: int) -> "AnyCache":
        return AnyCache(self, rows)


class AnyCache(CopyCache):
    """Each row is what it was fed."""

    def __init__(self, decoder: AnyDecoder, capacity: int) -> None:
        super().__init__(decoder, capacity)
        self._any, self._fed, self._asked = decoder, list[tuple[int, ...]](), Ask()

    def join(self, source: Any) -> int:
        self._fed.append(())
        return super().join(source)

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        self._fed = [(*fed, int(token)) for fed, token in zip(self._fed, token_ids, strict=True)]
        self._asked = ask
        super().begin_step(token_ids, ask)

    def end_step(self) -> Found:
        super().end_step()
        log_probs = np.stack([self._log_probs(fed) for fed in self._fed])
        best = np.argsort(-log_probs, 1, kind="stable")[:, : self._asked.best]
        found = Found(best, np.take_along_axis(log_probs, best, 1))
        return answer(self._asked, found, lambda rows: log_probs[rows] + 2)

    def take(self, parents: Any) -> int:
        self._fed = [self._fed[parent] for parent in parents]
        return super().take(parents)

    def _log_probs(self, fed: tuple[int, ...]) -> NDArray[np.float32]:
        chance = np.random.default_rng([self._any.seed, *fed[1:]])
        logits = chance.normal(0.0, 2.0, self._any.vocabulary_size)
        logits[self._any.liked[len(fed) % len(self._any.liked)]] += 6.0
        logits[0] += len(fed) / 4
        found: NDArray[np.float32] = (logits - np.log(np.exp(logits).sum())).astype(np.float32)
        return found


def translator_of(runner: Runner, tokenizer: Tokenizer, size: int) -> Translator:
    registry = CollectorRegistry()
    model = replace(
        MODEL, covers=True, vocabulary_size=size, max_new_tokens=64, defaults=replace(MODEL.defaults, max_new_tokens=24)
    )
    metrics, cache = ModelMetrics(ModelFamilies(registry), "any"), AnswerCache(0, AnswerCacheMetrics(registry))
    rules, admission = TargetRules((0,), frozenset({0}), min_tokens=3), Admission(8, runner)
    return Translator(model, tokenizer, rules, admission, runner.submit, metrics, cache)


TEXTS = ("สวัสดี", "السلام عليكم", "नमस्ते", "\U0001f469\u200d\U0001f52c", "x\u0301é", "don't. re, 's")
options = st.fixed_dictionaries(
    {},
    optional={
        "target_prefix": st.sampled_from(TEXTS),
        "must_exclude": st.lists(st.sampled_from(["e", "\u0301", ". ", (3, 4)]), max_size=2).map(tuple),
        "stop_strings": st.lists(st.sampled_from(["ส", "é", "n't", ".", "te"]), max_size=2).map(tuple),
    },
)
searches = st.sampled_from(
    [
        {"num_beams": 1},
        {"num_beams": 1, "do_sample": True, "seed": 4, "top_k": 0},
        {"num_beams": 3},
        {"num_beams": 3, "num_return_sequences": 2, "coverage_penalty": 5.0, "early_stopping": True},
        {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
        {"num_beams": 4, "must_include": ((3, 4), (5,))},
    ]
)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=30)
@given(search=searches, others=options, text=st.sampled_from(TEXTS), seed=st.integers(0, 99))
async def test_deltas_are_the_text(name: str, search: Options, others: Options, text: str, seed: int) -> None:
    tokenizer, size = opened(name)
    if "must_include" in search:
        others = {option: value for option, value in others.items() if option not in ("must_exclude", "stop_strings")}
    liked = tuple(tokenizer.encode_target(text)) or (random.Random(seed).randrange(1, size),)
    async with Runner(AnyDecoder(size, liked, seed), 4, 1, Unobserved()) as runner:
        translator = translator_of(runner, tokenizer, size)
        async with aclosing(translator.stream("any", ROUTE, {**search, **others})) as stream:
            *deltas, last = [event async for event in stream]
        [whole] = await translator.translate(["any"], ROUTE, {**search, **others})
    assert all(isinstance(delta, TextDelta) and delta.text for delta in deltas)
    assert not isinstance(last, TextDelta)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == last.hypotheses[0].text
    assert last.hypotheses[0].text == whole.hypotheses[0].text
