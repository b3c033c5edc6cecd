"""Which processors a request's options take."""

from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from engine.processors.processor import Processor
from engine.processors.repetition import (
    EncoderNoRepeatNGram,
    EncoderRepetitionPenalty,
    NoRepeatNGram,
    RepetitionPenalty,
)
from models.decoding import Decoding

Chain = tuple[Processor, ...]
"""One after the other."""

D = TypeVar("D", bound=Decoding)


@lru_cache
def chain(decoding: Decoding) -> Chain:
    """In the order of `generate` (transformers 5.23, `_get_logits_processor`). Empty: the model's scores stay."""
    processors: dict[Processor, bool] = {
        EncoderRepetitionPenalty(decoding.encoder_repetition_penalty): decoding.encoder_repetition_penalty != 1,
        RepetitionPenalty(decoding.repetition_penalty): decoding.repetition_penalty != 1,
        NoRepeatNGram(decoding.no_repeat_ngram_size): decoding.no_repeat_ngram_size > 0,
        EncoderNoRepeatNGram(decoding.encoder_no_repeat_ngram_size): decoding.encoder_no_repeat_ngram_size > 0,
    }
    return tuple(processor for processor, wanted in processors.items() if wanted)


def without_processors(decoding: D) -> D:
    """The same, but that the model's scores stay."""
    return replace(
        decoding,
        encoder_repetition_penalty=1.0,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        encoder_no_repeat_ngram_size=0,
    )
