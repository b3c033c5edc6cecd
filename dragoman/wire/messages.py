"""Between plain values and protobuf: pure functions that both clients share."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2

from dragoman.errors import Internal
from dragoman.results.server import Health, Model
from dragoman.results.translation import (
    Alignment,
    Attention,
    FinishReason,
    Guard,
    Hypothesis,
    Leg,
    Link,
    Reuse,
    Sentence,
    Span,
    TargetToken,
    TextDelta,
    Timings,
    Translation,
)
from dragoman.v1 import decoding_pb2, translation_pb2
from dragoman.v1.decoding_options import Decoding, DecodingKeywords
from dragoman.wire.given import check_known, check_whole
from dragoman.wire.options import received, sent
from dragoman.wire.texts import TextOptions, text_fields

MAX_CONTENTS = 32
"""Texts of one request, if the server takes so many: enough to share a batch, few enough that a retry repeats little.
"""
MAX_CONTENT_BYTES = 128 * 1024
"""UTF-8 bytes of the texts of one request, unless one text alone has more. Small enough to be sent again."""
CONCURRENT_REQUESTS = 4
"""Requests of one split call that are under way at once."""


Texts = list[str] | tuple[str, ...]
"""Of a call. Not any sequence, to a type checker: a str is one of str, too, and is answered by one result."""


class TargetOptions(DecodingKeywords, total=False):
    """What a translation is to be. What is left out, or None, takes the model's default."""

    source_language: str
    """BCP-47 code of the text. Left out: the model's only source language."""
    target_language: str
    """BCP-47 code to translate into. Left out: the model's only target language."""
    model: str
    """Name of the model. Left out: the server's default model."""
    prompt: str | None
    """Name of a prompt of the model, which is put before each text and tells the model its task. Empty: none."""


class TranslationOptions(TargetOptions, TextOptions, total=False):
    """How to translate. What is left out, or None, takes the model's default."""

    no_cache: bool
    """Decode every text for this call alone: take no answer that the server has kept, and keep and share none."""
    pivot: bool
    """Go by way of a third language where no model has both, if the server allows it. Not of streams."""


class Cancellable(Protocol):
    """A call under way."""

    def cancel(self) -> object:
        """Ends the call. Does nothing if it is done."""
        ...


Q = TypeVar("Q")
C = TypeVar("C", bound=Cancellable)

OPTIONS = decoding_pb2.DecodingOptions.DESCRIPTOR.fields_by_name
_FINISH_REASONS = {
    decoding_pb2.FINISH_REASON_END_TOKEN: FinishReason.END_TOKEN,
    decoding_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
    decoding_pb2.FINISH_REASON_STOP_STRING: FinishReason.STOP_STRING,
}
_REUSES = {
    translation_pb2.REUSE_UNSPECIFIED: Reuse.NONE,
    translation_pb2.REUSE_SHARED: Reuse.SHARED,
    translation_pb2.REUSE_CACHED: Reuse.CACHED,
}
_GUARDS = {
    translation_pb2.GUARD_REPETITION: Guard.REPETITION,
    translation_pb2.GUARD_COPY: Guard.COPY,
    translation_pb2.GUARD_LENGTH_LIMIT: Guard.LENGTH_LIMIT,
    translation_pb2.GUARD_LENGTH_RATIO: Guard.LENGTH_RATIO,
    translation_pb2.GUARD_SCRIPT: Guard.SCRIPT,
}


# Requests


def most_contents(model: Model) -> int:
    """How many texts a request to the model may have."""
    return model.max_contents or MAX_CONTENTS


def batches(texts: Iterable[str], most: int = MAX_CONTENTS) -> Iterator[list[str]]:
    """The texts in order, in lists that each fit one request.

    most: so many texts the server takes
    """
    most = min(most, MAX_CONTENTS)
    batch: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if batch and (len(batch) == most or size + length > MAX_CONTENT_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += length
    if batch:
        yield batch


def translate_requests(
    texts: Iterable[str], options: TranslationOptions, most: int
) -> Iterator[translation_pb2.TranslateRequest]:
    """The requests that together translate the texts. Raises TypeError or ValueError for an impossible option.

    most: see `batches`
    """
    check_known(options, TranslationOptions)
    decoding, shape = decoding_options(options), text_fields(options)
    for contents in batches(texts, most):
        yield translation_pb2.TranslateRequest(
            contents=contents,
            source_language_code=options.get("source_language", ""),
            target_language_code=options.get("target_language", ""),
            model=options.get("model", ""),
            decoding=decoding,
            no_cache=options.get("no_cache", False),
            prompt=options.get("prompt"),
            pivot=options.get("pivot", False),
            **shape,
        )


def stream_request(text: str, options: TranslationOptions) -> translation_pb2.StreamTranslateRequest:
    """The request to translate one text as a stream. Raises TypeError or ValueError for an impossible option."""
    if not isinstance(text, str):
        raise TypeError(f"text is {text!r}; it must be a str")
    check_whole("text", text)
    check_known(options, TranslationOptions)
    if options.get("pivot"):
        raise ValueError("pivot is True; streams go by way of no third language: call translate")
    if whole := sorted(name for name in TextOptions.__annotations__ if options.get(name)):
        raise ValueError(f"{whole[0]} is {options.get(whole[0])!r}; a stream has one sentence: call translate")
    return translation_pb2.StreamTranslateRequest(
        content=text,
        source_language_code=options.get("source_language", ""),
        target_language_code=options.get("target_language", ""),
        model=options.get("model", ""),
        decoding=decoding_options(options),
        no_cache=options.get("no_cache", False),
        prompt=options.get("prompt"),
    )


def windowed(requests: Iterable[Q], start: Callable[[Q], C]) -> Generator[tuple[Q, C]]:
    """Starts requests ahead and gives them with their calls, in order. Closing it cancels what is still under way."""
    window: deque[tuple[Q, C]] = deque()
    try:
        for request in requests:
            window.append((request, start(request)))
            if len(window) == CONCURRENT_REQUESTS:
                yield window[0]
                window.popleft()
        while window:
            yield window[0]
            window.popleft()
    finally:
        for _, call in window:
            call.cancel()


def decoding_options(options: TargetOptions) -> decoding_pb2.DecodingOptions:
    """Those of a request. Raises ValueError, or TypeError, for a value that has no place on the wire."""
    message = decoding_pb2.DecodingOptions()
    for name, value in options.items():
        if name not in OPTIONS or value is None:
            continue
        try:
            wired: dict[str, Any] = {name: sent(OPTIONS[name], value)}
            message.MergeFrom(decoding_pb2.DecodingOptions(**wired))
        except (TypeError, ValueError) as error:  # of protobuf, which does not say which option
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{name}: {error}") from error
    return message


# Replies


def translations(
    request: translation_pb2.TranslateRequest, response: translation_pb2.TranslateResponse
) -> list[Translation]:
    """The translations of a request's contents, in order."""
    check_count(request.contents, response.translations)
    return [translation(message) for message in response.translations]


def stream_event(message: translation_pb2.StreamTranslateResponse) -> TextDelta | Translation:
    """One event of a stream."""
    if message.WhichOneof("event") == "translation":
        return translation(message.translation)
    return TextDelta(message.text_delta)


def translation(message: translation_pb2.Translation) -> Translation:
    """The translation of one content. Raises Internal."""
    if not message.hypotheses:
        raise Internal("the server sent a translation without hypotheses", grpc.StatusCode.INTERNAL)
    hypotheses, reuse = tuple(map(_hypothesis, message.hypotheses)), _REUSES.get(message.reuse, Reuse.UNKNOWN)
    legs, seed = tuple(map(_leg, message.legs)), message.seed if message.HasField("seed") else None
    guards = tuple(_GUARDS.get(guard, Guard.UNKNOWN) for guard in message.guards)
    return Translation(
        hypotheses,
        message.source_tokens,
        timings(message.timings),
        reuse,
        legs,
        seed,
        guards,
        message.retried,
        tuple(map(_sentence, message.sentences)),
        _attention(message.source_attention) if message.HasField("source_attention") else None,
    )


def _sentence(message: translation_pb2.Sentence) -> Sentence:
    return Sentence(
        _span(message.source_span),
        _span(message.target_span),
        message.score,
        tuple(_GUARDS.get(guard, Guard.UNKNOWN) for guard in message.guards),
    )


def _span(message: translation_pb2.Span) -> Span:
    return Span(message.begin, message.end)


def _leg(message: translation_pb2.Leg) -> Leg:
    return Leg(
        message.model,
        message.source_language_code,
        message.target_language_code,
        message.source_tokens,
        timings(message.timings),
    )


def timings(message: decoding_pb2.Timings) -> Timings:
    """Durations as seconds."""
    return Timings(
        queue_s=_seconds(message.queue),
        encode_s=_seconds(message.encode),
        decode_s=_seconds(message.decode),
        total_s=_seconds(message.total),
        steps=message.steps,
        tokenize_s=_seconds(message.tokenize),
        detokenize_s=_seconds(message.detokenize),
        mean_batch_rows=message.mean_batch_rows,
    )


def plain(enum: EnumDescriptor, number: int, prefix: str) -> str:
    """The value's name on the wire, without what all of them begin with."""
    value = enum.values_by_number.get(number)
    return "unknown" if value is None else value.name.removeprefix(prefix).lower()


def health(message: health_pb2.HealthCheckResponse) -> Health:
    """What the server says about one service."""
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(message.status)
    return Health[name] if name in Health.__members__ else Health.UNKNOWN


def _seconds(duration: Duration) -> float:
    return duration.ToNanoseconds() / 1e9


def decoding(message: decoding_pb2.DecodingOptions) -> Decoding:
    return Decoding(**{name: received(field, getattr(message, name)) for name, field in OPTIONS.items()})


def _hypothesis(message: translation_pb2.Hypothesis) -> Hypothesis:
    reason = _FINISH_REASONS.get(message.finish_reason, FinishReason.UNKNOWN)
    utility = message.expected_utility if message.HasField("expected_utility") else None
    tokens = tuple(map(target_token, message.target_tokens))
    alignment = _alignment(message.alignment) if message.HasField("alignment") else None
    attention = _attention(message.attention) if message.HasField("attention") else None
    told = tokens, utility, alignment, attention, message.log_prob
    return Hypothesis(message.text, message.score, message.tokens, reason, *told)


def _alignment(message: translation_pb2.Alignment) -> Alignment:
    source, target = map(_spans, (message.source_spans, message.target_spans))
    return Alignment(source, target, tuple(Link(link.source, link.target, link.weight) for link in message.links))


def _attention(message: translation_pb2.Attention) -> Attention:
    return Attention(_spans(message.spans), tuple(message.shape), message.weights)


def _spans(messages: Iterable[translation_pb2.Span]) -> tuple[Span, ...]:
    return tuple(map(_span, messages))


def target_token(message: translation_pb2.TargetToken) -> TargetToken:
    """A token of a hypothesis, or of a target that is scored."""
    return TargetToken(message.id, message.text, message.begin, message.log_prob)


def check_count(contents: Sequence[object], answers: Sequence[object]) -> None:
    """An answer too few or too many would give every later text the translation of another. Raises Internal."""
    if len(contents) != len(answers):
        raise Internal(f"the server sent {len(answers)} results for {len(contents)} contents", grpc.StatusCode.INTERNAL)
