"""Which processors a request's options take."""

from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import TypeVar

from engine.processors.length import ExponentialDecayLengthPenalty
from engine.processors.phrases import PrefixBias, SequenceBias, SuppressTokens, no_bad_words
from engine.processors.processor import Processor
from engine.processors.repetition import (
    EncoderNoRepeatNGram,
    EncoderRepetitionPenalty,
    NoRepeatNGram,
    RepetitionPenalty,
)
from engine.processors.texts import NoTexts
from engine.targets import TargetRules
from models.decoding import Decoding
from models.tokenizers.target_texts import Pieces

Chain = tuple[Processor, ...]
"""One after the other."""

D = TypeVar("D", bound=Decoding)

PROCESSED = (
    "sequence_bias",
    "encoder_repetition_penalty",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words",
    "must_exclude",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "prefix_bias_beta",
)
"""The options that have processors."""
_processed_of = attrgetter(*PROCESSED)
_UNPROCESSED = _processed_of(Decoding())


def chain(decoding: Decoding, rules: TargetRules) -> Chain:
    """In the order of `generate` (transformers 5.23, `_get_logits_processor`). Empty: the model's scores stay."""
    if not has_processors(decoding):
        return ()
    begin = 0 if rules.forced_begin_id is None else 1
    if decoding.words:  # which may be many, and are not kept for those to come, nor what reads them: a tokenizer
        return _chain.__wrapped__(decoding, rules.end_ids, begin, rules.pieces)
    return _chain(decoding, rules.end_ids, begin, None)


@lru_cache
def _chain(decoding: Decoding, end_ids: frozenset[int], begin: int, pieces: Pieces | None) -> Chain:
    """`begin`: how many tokens are forced before the first that is chosen."""
    chosen = decoding
    excluded_texts = tuple(phrase for phrase in chosen.must_exclude if isinstance(phrase, str))
    excluded_tokens = [phrase for phrase in chosen.must_exclude if not isinstance(phrase, str)]
    wanted: list[Processor | None] = [
        SequenceBias(chosen.sequence_bias) if chosen.sequence_bias else None,
        EncoderRepetitionPenalty(chosen.encoder_repetition_penalty) if chosen.encoder_repetition_penalty != 1 else None,
        RepetitionPenalty(chosen.repetition_penalty) if chosen.repetition_penalty != 1 else None,
        NoRepeatNGram(chosen.no_repeat_ngram_size) if chosen.no_repeat_ngram_size else None,
        EncoderNoRepeatNGram(chosen.encoder_no_repeat_ngram_size) if chosen.encoder_no_repeat_ngram_size else None,
        no_bad_words((*chosen.bad_words, *excluded_tokens), end_ids),
        NoTexts.of(excluded_texts, pieces),
        ExponentialDecayLengthPenalty(chosen.exponential_decay_start, chosen.exponential_decay_length_penalty, end_ids)
        if chosen.exponential_decay_length_penalty != 1
        else None,
        SuppressTokens(chosen.suppress_tokens) if chosen.suppress_tokens else None,
        SuppressTokens(chosen.begin_suppress_tokens, begin) if chosen.begin_suppress_tokens else None,
        PrefixBias(chosen.target_prefix, chosen.prefix_bias_beta)
        if chosen.target_prefix and chosen.prefix_bias_beta
        else None,
    ]
    return tuple(processor for processor in wanted if processor is not None)


def has_processors(decoding: Decoding) -> bool:
    """Whether an option asks for one. Looked at for every request, so nothing is made for it."""
    return bool(_processed_of(decoding) != _UNPROCESSED)


def without_processors(decoding: D) -> D:
    """The same, but that the model's scores stay."""
    return replace(decoding, **dict(zip(PROCESSED, _UNPROCESSED, strict=True)))
