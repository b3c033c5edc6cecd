"""What a translation comes back as."""

from dataclasses import dataclass

from engine.request import FinishReason, Hypothesis, Timings
from models.tokenizers.tokenizer import Span
from server.telemetry.guards import GuardFlag, Translated, guard_flags
from server.translation.sharing.waiting import Reuse
from server.translation.sources import SourceText
from server.translation.targets import Attention, TargetText


@dataclass(frozen=True, slots=True)
class Leg:
    """One translation of two, by way of a third language."""

    model: str
    source_language: str
    target_language: str
    source_tokens: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class TranslatedSentence:
    """A sentence of a content. Spans are of characters, in the content and in the best hypothesis; of HTML empty."""

    source: Span
    target: Span
    score: float
    guards: tuple[GuardFlag, ...]


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one content: its hypotheses, best first."""

    hypotheses: tuple[TargetText, ...]
    source_tokens: int
    timings: Timings
    reuse: Reuse
    legs: tuple[Leg, ...] = ()
    """Both, if there were two."""
    seed: int | None = None
    """Of tokens that were drawn."""
    guards: tuple[GuardFlag, ...] = ()
    """How the best hypothesis looks wrong."""
    retried: bool = False
    """It was made again, because it did."""
    sentences: tuple[TranslatedSentence, ...] = ()
    """Of a content that was translated sentence by sentence."""
    source_attention: Attention | None = None
    """Of the content's tokens, if it was wanted."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text to append to what came before."""

    text: str


def guards_of(source: SourceText, text: str, best: Hypothesis, language: str) -> tuple[GuardFlag, ...]:
    """What looks wrong with a translation. language: of the target."""
    cut = best.finish_reason is FinishReason.LENGTH
    token_ids = best.token_ids[:-1] if best.finish_reason is FinishReason.END_TOKEN else best.token_ids
    of = Translated(source.text, text, token_ids, len(source.token_ids) - 1, cut, language)
    return tuple(guard_flags(of))
