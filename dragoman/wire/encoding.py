"""Between plain values and protobuf, for vectors: pure functions that both clients share."""

import struct
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Literal, TypedDict

from dragoman.results.embedding import Embedding
from dragoman.results.translation import Translation
from dragoman.v1 import encoding_pb2, translation_pb2
from dragoman.wire.given import check_known, int32
from dragoman.wire.messages import (
    TargetOptions,
    batches,
    check_count,
    decoding_options,
    timings,
    translation,
)
from dragoman.wire.options import number

Pooling = Literal["none", "cls", "last", "mean", "max", "sum", "sum_sqrt", "weighted_mean", "attention"]
EmbeddingType = Literal["float32", "float16", "int8", "binary"]
Truncation = Literal["error", "end"]


class VectorOptions(TypedDict, total=False):
    """How vectors are made. What is left out, or None, takes the model's default."""

    poolings: Iterable[Pooling] | None
    """What makes one vector of those of all tokens; of several, their vectors one after the other. "none": a vector for
    every token."""
    dimensions: int | None
    """The first so many values of a vector."""
    normalize: bool | None
    """Divide every vector by its L2 norm."""
    type: EmbeddingType | None
    """The numbers that vectors are sent in. Left out: "float32"."""


class EncodingOptions(VectorOptions, total=False):
    """How to encode. What is left out, or None, takes the model's default."""

    truncation: Truncation | None
    """What becomes of a text that has more tokens than the model takes: it is refused ("error"), or its end is cut off
    ("end"), and `Embedding.truncated` says so. Left out: "error"."""
    prompt: str | None
    """Name of a prompt of the model, a text that is put before each text. Empty: none."""
    model: str
    """Name of the model. Left out: the server's default model."""


class TranslateAndEncodeOptions(TargetOptions, VectorOptions, total=False):
    """How to translate and encode. What is left out, or None, takes the model's default. One prompt is for both."""


POOLINGS = {
    "none": encoding_pb2.POOLING_NONE,
    "cls": encoding_pb2.POOLING_CLS,
    "last": encoding_pb2.POOLING_LAST,
    "mean": encoding_pb2.POOLING_MEAN,
    "max": encoding_pb2.POOLING_MAX,
    "sum": encoding_pb2.POOLING_SUM,
    "sum_sqrt": encoding_pb2.POOLING_SUM_SQRT,
    "weighted_mean": encoding_pb2.POOLING_WEIGHTED_MEAN,
    "attention": encoding_pb2.POOLING_ATTENTION,
}
TYPES = {
    "float32": encoding_pb2.EMBEDDING_TYPE_FLOAT32,
    "float16": encoding_pb2.EMBEDDING_TYPE_FLOAT16,
    "int8": encoding_pb2.EMBEDDING_TYPE_INT8,
    "binary": encoding_pb2.EMBEDDING_TYPE_BINARY,
}
TRUNCATIONS = {
    "error": encoding_pb2.TRUNCATION_ERROR,
    "end": encoding_pb2.TRUNCATION_END,
}


def encode_requests(texts: Iterable[str], options: EncodingOptions, most: int) -> Iterator[encoding_pb2.EncodeRequest]:
    """The requests that together encode the texts. Raises TypeError or ValueError for an impossible option.

    most: see `dragoman.wire.messages.batches`
    """
    check_known(options, EncodingOptions)
    poolings, numbers = _poolings(options), number("type", options.get("type") or "float32", TYPES)
    truncation = number("truncation", options.get("truncation") or "error", TRUNCATIONS)
    for contents in batches(texts, most):
        yield encoding_pb2.EncodeRequest(
            contents=contents,
            model=options.get("model", ""),
            normalize=options.get("normalize"),
            poolings=poolings,
            dimensions=int32("dimensions", options.get("dimensions")),
            type=numbers,
            truncation=truncation,
            prompt=options.get("prompt"),
        )


def translate_and_encode_requests(
    texts: Iterable[str], options: TranslateAndEncodeOptions, most: int
) -> Iterator[translation_pb2.TranslateAndEncodeRequest]:
    """The requests that together do both for the texts. Raises TypeError or ValueError for an impossible option.

    most: see `dragoman.wire.messages.batches`
    """
    check_known(options, TranslateAndEncodeOptions)
    poolings, numbers = _poolings(options), number("type", options.get("type") or "float32", TYPES)
    decoding = decoding_options(options)
    for contents in batches(texts, most):
        yield translation_pb2.TranslateAndEncodeRequest(
            contents=contents,
            source_language_code=options.get("source_language", ""),
            target_language_code=options.get("target_language", ""),
            model=options.get("model", ""),
            decoding=decoding,
            prompt=options.get("prompt"),
            normalize=options.get("normalize"),
            poolings=poolings,
            dimensions=int32("dimensions", options.get("dimensions")),
            type=numbers,
        )


def translations_and_embeddings(
    request: translation_pb2.TranslateAndEncodeRequest, response: translation_pb2.TranslateAndEncodeResponse
) -> list[tuple[Translation, Embedding]]:
    """Both of each of a request's contents, in order."""
    check_count(request.contents, response.translations)
    check_count(request.contents, response.embeddings)
    vectors = (_embedding(message, request.type) for message in response.embeddings)
    return list(zip(map(translation, response.translations), vectors, strict=True))


def embeddings(request: encoding_pb2.EncodeRequest, response: encoding_pb2.EncodeResponse) -> list[Embedding]:
    """The embeddings of a request's contents, in order."""
    check_count(request.contents, response.embeddings)
    return [_embedding(message, request.type) for message in response.embeddings]


def _embedding(message: encoding_pb2.Embedding, numbers: encoding_pb2.EmbeddingType.ValueType) -> Embedding:
    return Embedding(
        values=tuple(message.values or _values(message, numbers)),
        source_tokens=message.source_tokens,
        timings=timings(message.timings),
        shape=tuple(message.shape) or (len(message.values),),  # an older server does not say it
        truncated=message.truncated,
        data=message.data,
        scales=tuple(message.scales),
    )


def _values(message: encoding_pb2.Embedding, numbers: encoding_pb2.EmbeddingType.ValueType) -> Iterable[float]:
    """Those that were not sent as float32."""
    if numbers == encoding_pb2.EMBEDDING_TYPE_FLOAT16:
        return struct.unpack(f"<{len(message.data) // 2}e", message.data)
    if numbers == encoding_pb2.EMBEDDING_TYPE_INT8:
        scales = chain.from_iterable(repeat(scale, message.shape[-1]) for scale in message.scales)
        whole = struct.unpack(f"{len(message.data)}b", message.data)
        return (value * scale for value, scale in zip(whole, scales, strict=True))
    return ()


def _poolings(options: VectorOptions) -> list[encoding_pb2.Pooling.ValueType]:
    poolings = options.get("poolings") or ()
    if isinstance(poolings, str) or not isinstance(poolings, Iterable):
        raise TypeError(f"poolings is {poolings!r}; it must be a list of them")
    return [number("poolings", pooling, POOLINGS) for pooling in poolings]
