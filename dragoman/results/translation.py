"""What a translation is, and all that comes with it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class FinishReason(StrEnum):
    """Why a hypothesis ended."""

    END_TOKEN = "end_token"
    """The model produced its end token."""
    LENGTH = "length"
    """`max_new_tokens` was reached; the text may be cut."""
    STOP_STRING = "stop_string"
    """Its text has one of `stop_strings`."""
    UNKNOWN = "unknown"
    """A reason this version of the client has no name for."""


class Reuse(StrEnum):
    """Whose decoding an answer is."""

    NONE = "none"
    """The text's own."""
    SHARED = "shared"
    """That of an equal text that was under way. Of the timings `decode_s` is how long this one waited for it."""
    CACHED = "cached"
    """That of an equal text before, whose answer the server has kept."""
    UNKNOWN = "unknown"
    """A way this version of the client has no name for."""


class Guard(StrEnum):
    """A sign that a translation is wrong. Good ones may have it too."""

    REPETITION = "repetition"
    """It ends in the same few words over and over."""
    COPY = "copy"
    """It is the text itself."""
    LENGTH_LIMIT = "length_limit"
    """It was cut by `max_new_tokens`."""
    LENGTH_RATIO = "length_ratio"
    """It is more than three times as long as the text, or less than a third, in tokens."""
    SCRIPT = "script"
    """Most of its letters are of no script that the target language is written in."""
    UNKNOWN = "unknown"
    """A sign this version of the client has no name for."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one text went."""

    queue_s: float
    """From the arrival of the request to the start of its encoder run."""
    encode_s: float
    """The encoder run."""
    decode_s: float
    """From the end of the encoder run to the last token. Zero for an embedding."""
    total_s: float
    """From the arrival of the request to its last token."""
    steps: int
    """Decoder steps this text took part in. Zero for an embedding."""
    tokenize_s: float
    """Turning the text into source tokens, before it arrived in the queue."""
    detokenize_s: float
    """Turning target tokens into text, after the last token. Zero for an embedding."""
    mean_batch_rows: float
    """Mean rows of those steps: this text's, and those of the texts that shared them. Zero for an embedding."""


@dataclass(frozen=True, slots=True)
class TargetToken:
    """A token of a hypothesis."""

    id: int
    """In the model's target vocabulary."""
    text: str
    """What it adds to the text, or nothing. A character of several tokens is the last one's."""
    begin: int
    """Where that begins in the text, in characters."""
    log_prob: float
    """The logarithm of its probability, as the score has it. 0 where it was forced."""


class Span(NamedTuple):
    """A part of a text, in characters: `text[begin:end]`."""

    begin: int
    end: int


class Link(NamedTuple):
    """A token of a translation comes from a token of the text."""

    source: int
    """Which of `Alignment.source_spans`."""
    target: int
    """Which of `Alignment.target_spans`."""
    weight: float
    """Share of the target token's attention, from 0.02 to 1."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """From the tokens of a translation to those of the text, as the attention of the model has it."""

    source_spans: tuple[Span, ...]
    """Where each token of the text stands in it. One without text, such as the end token, is empty."""
    target_spans: tuple[Span, ...]
    """The same in the translation."""
    links: tuple[Link, ...]
    """In the order of the translation's tokens; of each token the strongest first."""


@dataclass(frozen=True, slots=True)
class Attention:
    """How much tokens look at the tokens of the text, of every layer and head.

    `numpy.frombuffer(attention.weights, "<f2").reshape(attention.shape)` is an array of it.
    """

    spans: tuple[Span, ...]
    """Where each token that looks stands in its text. One without text, such as the end token, is empty."""
    shape: tuple[int, ...]
    """(layers, heads, tokens that look, tokens of the text)"""
    weights: bytes
    """float16, little-endian, the last axis changing fastest: over all tokens of the text they add up to 1."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One possible translation."""

    text: str
    score: float
    """sum(log p) / tokens^length_penalty; comparable only between hypotheses of one text."""
    tokens: int
    """The end token included."""
    finish_reason: FinishReason
    target_tokens: tuple[TargetToken, ...] = ()
    """Of `with_tokens`: its tokens, the end token included, without those of a forced `target_prefix`."""
    expected_utility: float | None = None
    """Of `mbr_samples`: the mean chrF of the text by all samples, from 0 to 100."""
    alignment: Alignment | None = None
    """Of `with_alignment`."""
    attention: Attention | None = None
    """Of `with_attention`: where its tokens look in the text, the attention of the decoder to the source."""
    log_prob: float = 0.0
    """sum(log p) of its tokens. Of a text of several sentences, of all of them."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One translation of two, by way of a third language."""

    model: str
    source_language: str
    target_language: str
    source_tokens: int
    timings: Timings = field(compare=False)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a text, or a part of one that was too long."""

    source: Span
    """Where it stands in the text. Of HTML empty."""
    target: Span
    """Where its translation stands in the best hypothesis. Of HTML empty."""
    score: float
    """Of its best translation: see `Hypothesis.score`."""
    guards: tuple[Guard, ...] = ()
    """How its best translation looks wrong, if it does."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one text. `text`, `score`, `tokens` and `finish_reason` are those of the best hypothesis.

    Two are equal that say the same, whatever time they took and whosever decoding they are.
    """

    hypotheses: tuple[Hypothesis, ...]
    """`num_return_sequences` of them, best first."""
    source_tokens: int
    """Tokens of the source text, the end token included."""
    timings: Timings = field(compare=False)
    reuse: Reuse = field(default=Reuse.NONE, compare=False)
    """Whether the text was decoded for this answer."""
    legs: tuple[Leg, ...] = ()
    """Both translations, if it went by way of a third language. Then `timings` are the sums, and scores are 0."""
    seed: int | None = None
    """Of `do_sample`: what the same tokens are drawn with again."""
    guards: tuple[Guard, ...] = ()
    """How the best hypothesis looks wrong, if it does."""
    retried: bool = False
    """Of `retry_on_guard`: whether the text was translated again. `timings` are then the sums."""
    sentences: tuple[Sentence, ...] = ()
    """Of a text in sentences. `timings` and `source_tokens` are the sums; of several, hypotheses have no score."""
    source_attention: Attention | None = None
    """Of `with_attention`: where the tokens of the text look in it, the self-attention of the encoder."""

    @property
    def text(self) -> str:
        """The translated text."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """See `Hypothesis.score`."""
        return self.hypotheses[0].score

    @property
    def tokens(self) -> int:
        """Target tokens, the end token included."""
        return self.hypotheses[0].tokens

    @property
    def finish_reason(self) -> FinishReason:
        """Why the best hypothesis ended."""
        return self.hypotheses[0].finish_reason


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text to append to what a stream gave before. All deltas together are `Translation.text`."""

    text: str
