"""Searches of models without a cache, which those with one are held to."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NoReturn

import torch

from engine.batch.running_batch import RunningBatch
from engine.decoder import Ask, Decoder, Found, Parents, TokenIds
from engine.devices.session import CPU
from engine.observer import Unobserved
from engine.request import Event, Finished, Translate
from export.verification.reference import log_probs
from models.architectures.architecture import Architecture
from models.architectures.prefix.config import PrefixConfig
from models.config import ModelShape
from models.decoding import Decoding
from tests.fakes import CopySource, rules_of

Tokens = tuple[int, ...]
Answers = dict[tuple[Tokens, int], Finished]
SCORE_ERROR = 1e-4
"""Of a token's log-probability."""


@dataclass
class PrefixCache:
    """A running batch that keeps no state: every step runs PyTorch's teacher-forced pass over whole targets."""

    model: Architecture
    rows: list[tuple[Tokens, Tokens]] = field(default_factory=list)
    wanted: int = 0

    @property
    def live(self) -> int:
        return len(self.rows)

    def join(self, source: CopySource) -> int:
        self.rows.append((source.source_ids, ()))
        return self.live - 1

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        pairs = zip(self.rows, token_ids, strict=True)
        self.rows, self.wanted = [(source, (*target, int(token))) for (source, target), token in pairs], ask.best

    def end_step(self) -> Found:
        scores = torch.stack([log_probs(self.model, source, target)[-1] for source, target in self.rows])
        best = scores.topk(self.wanted)
        return Found(best.indices.numpy(), best.values.numpy())

    def take(self, parents: Parents) -> int:
        self.rows = [self.rows[parent] for parent in parents]
        return 0


@dataclass
class PrefixDecoder:
    model: Architecture
    device = CPU
    row_tokens = 0
    gives_logits = False

    def close(self) -> None:
        """Nothing outlives it."""

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[CopySource]:
        return [CopySource(tuple(source)) for source in sources]

    @property
    def given_targets(self) -> NoReturn:
        raise NotImplementedError

    def open_cache(self, rows: int) -> PrefixCache:
        return PrefixCache(self.model)


def some_sources(config: ModelShape) -> list[Tokens]:
    """Ten, of lengths that need more than one capacity of the cache."""
    chance, ids = random.Random(3), range(config.source_vocab_size - 1)
    return [tuple(chance.choices(ids, k=length)) for length in (5, 1, 30, 12, 3, 3, 47, 7, 2, 9)]


def search(decoder: Decoder[Any], config: ModelShape, sources: Sequence[Tokens] | None = None) -> Answers:
    """Translates sources, greedily and with three beams, in seven rows: by the source and the number of beams."""
    rules = rules_of(config.end_id, start_id=config.decoder_start_id)
    engine = RunningBatch(decoder, 7, Unobserved(), worker=0)
    answers: Answers = {}
    for source, num_beams in product(sources or some_sources(config), (1, 3)):
        while engine.free_rows < num_beams:
            engine.step()
        decoding = Decoding(num_beams, num_beams, max_new_tokens=12, length_penalty=1.0, early_stopping=False)
        deliver = partial(keep, answers, (source, num_beams))
        engine.admit([Translate(source, deliver, decoding=decoding, rules=rules)])
        engine.step()
    while not engine.idle:
        engine.step()
    return answers


def check_searches(decoder: Decoder[Any], model: Architecture) -> None:
    """Tokens and scores are those of PyTorch's passes without a cache, and to the last bit what each has alone.

    Of two tokens that are as likely to PyTorch, greedy search may find either: processors round otherwise.
    """
    config, sources = model.config, some_sources(model.config)
    if isinstance(config, PrefixConfig):  # a target begins behind the token that ends its source
        sources = [(*source[:-1], config.end_id) for source in sources]
    expected, found = search(PrefixDecoder(model), config, sources), search(decoder, config, sources)
    each = [search(decoder, config, [source]) for source in sources]
    alone = {key: answer for answers in each for key, answer in answers.items()}
    for key, answer in expected.items():
        source, num_beams = key
        for ours, theirs in zip(found[key].hypotheses, answer.hypotheses, strict=True):
            if num_beams == 1 and ours.token_ids != theirs.token_ids:
                assert tied(model, source, ours.token_ids, theirs.token_ids) < SCORE_ERROR, key
                continue
            assert ours.token_ids == theirs.token_ids, key
            assert abs(ours.score - theirs.score) < SCORE_ERROR, key
        assert found[key].hypotheses == alone[key].hypotheses, key
    assert len({hypothesis.token_ids for answer in found.values() for hypothesis in answer.hypotheses}) > 5


def tied(model: Architecture, source: Tokens, one: Tokens, other: Tokens) -> float:
    """By how much PyTorch's log-probabilities of the first tokens differ that two targets have not in common."""
    length = next(at for at, (ours, theirs) in enumerate(zip(one, other, strict=False)) if ours != theirs)
    scores = log_probs(model, source, (model.config.decoder_start_id, *one[:length]))[-1]
    return float(abs(scores[one[length]] - scores[other[length]]))


def keep(answers: Answers, key: tuple[Tokens, int], event: Event) -> None:
    assert isinstance(event, Finished)
    answers[key] = event
