"""EncodingService: protobuf to plain values and back."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace

import numpy as np

from dragoman.v1 import encoding_pb2, encoding_pb2_grpc, model_pb2, translation_pb2
from models.encoding import Numbers, Pooling
from models.encoding.classifier import Label, LabelledSpan
from server.api.streams import Room, in_order
from server.api.values import plain, write_timings
from server.catalog.catalog import Catalog
from server.catalog.served_model import ServedModel
from server.translation.encoding.embeddings import Embedding, EncodingOptions, resolve_encoding
from server.translation.encoding.labels import LabelOptions
from server.translation.translator import Translator

POOLINGS = {
    encoding_pb2.POOLING_NONE: Pooling.NONE,
    encoding_pb2.POOLING_CLS: Pooling.CLS,
    encoding_pb2.POOLING_LAST: Pooling.LAST,
    encoding_pb2.POOLING_MEAN: Pooling.MEAN,
    encoding_pb2.POOLING_MAX: Pooling.MAX,
    encoding_pb2.POOLING_SUM: Pooling.SUM,
    encoding_pb2.POOLING_SUM_SQRT: Pooling.SUM_SQRT,
    encoding_pb2.POOLING_WEIGHTED_MEAN: Pooling.WEIGHTED_MEAN,
    encoding_pb2.POOLING_ATTENTION: Pooling.ATTENTION,
}
NUMBERS = {
    encoding_pb2.EMBEDDING_TYPE_UNSPECIFIED: Numbers.FLOAT32,
    encoding_pb2.EMBEDDING_TYPE_FLOAT32: Numbers.FLOAT32,
    encoding_pb2.EMBEDDING_TYPE_FLOAT16: Numbers.FLOAT16,
    encoding_pb2.EMBEDDING_TYPE_INT8: Numbers.INT8,
    encoding_pb2.EMBEDDING_TYPE_BINARY: Numbers.BINARY,
}
TRUNCATES = {
    encoding_pb2.TRUNCATION_UNSPECIFIED: False,
    encoding_pb2.TRUNCATION_ERROR: False,
    encoding_pb2.TRUNCATION_END: True,
}
"""Whether a text that is too long is cut."""

GROUPS_ENTITIES = {
    encoding_pb2.GROUPING_UNSPECIFIED: False,
    encoding_pb2.GROUPING_TOKENS: False,
    encoding_pb2.GROUPING_ENTITIES: True,
}
"""Whether spans are entities, and not tokens."""

AHEAD = 4
"""Requests of a stream that are worked on before they are waited for."""


class EncodingService(encoding_pb2_grpc.EncodingServiceServicer):
    """See proto/dragoman/v1/encoding.proto."""

    def __init__(self, models: Catalog[Translator]) -> None:
        self._models = models

    async def Encode(self, request: encoding_pb2.EncodeRequest, context: object) -> encoding_pb2.EncodeResponse:
        """Encodes every content of the request."""
        translator = self._models.find(request.model)
        embeddings = await translator.encode(request.contents, _options(request))
        response = encoding_pb2.EncodeResponse(model=translator.model.name)
        for embedding in embeddings:
            write_embedding(embedding, response.embeddings.add())
        return response

    async def Classify(self, request: encoding_pb2.ClassifyRequest, context: object) -> encoding_pb2.ClassifyResponse:
        """Labels every content of the request, or its tokens."""
        translator = self._models.find(request.model)
        options = LabelOptions(
            most=request.most_labels if request.HasField("most_labels") else None,
            entities=plain("grouping", request.grouping, GROUPS_ENTITIES),
            truncate=plain("truncation", request.truncation, TRUNCATES),
        )
        found = await translator.classify(request.contents, options, request.second_contents)
        response = encoding_pb2.ClassifyResponse(model=translator.model.name)
        for classification in found:
            message = response.classifications.add(
                labels=_labels(classification.labels),
                spans=map(_span, classification.spans),
                source_tokens=classification.source_tokens,
                truncated=classification.truncated,
            )
            write_timings(classification.timings, message.timings)
        return response

    async def StreamEncode(
        self, requests: AsyncIterator[encoding_pb2.StreamEncodeRequest], context: object
    ) -> AsyncIterator[encoding_pb2.StreamEncodeResponse]:
        """Encodes the requests of a stream, some at once, and answers in their order.

        No more texts at once than a call may have: large requests would fill the queue, and be refused by themselves.
        """
        room = Room(self._models.find("").model.max_contents)

        async def work(request: encoding_pb2.StreamEncodeRequest) -> encoding_pb2.StreamEncodeResponse:
            async with room.taken(len(request.request.contents)):
                return encoding_pb2.StreamEncodeResponse(response=await self.Encode(request.request, context))

        async with aclosing(in_order(requests, work, AHEAD)) as responses:
            async for response in responses:
                yield response


def encoding_defaults(model: ServedModel) -> model_pb2.EncodingDefaults:
    """What a request need not say."""
    own = model.encoding
    numbers = {pooling: number for number, pooling in POOLINGS.items()}
    [*_, values] = resolve_encoding(EncodingOptions(), model).shape(1, model.width)
    return model_pb2.EncodingDefaults(
        poolings=[numbers[pooling] for pooling in own.poolings],
        dimensions=values,
        normalize=own.normalize,
        prompts=own.prompts,
        prompt=own.prompt or "",
        offered=[numbers[pooling] for pooling in own.offered],
    )


def vector_options(
    request: encoding_pb2.EncodeRequest | translation_pb2.TranslateAndEncodeRequest,
) -> EncodingOptions:
    """What is set of how vectors are made. Raises OptionOutOfRange."""
    return EncodingOptions(
        poolings=tuple(plain(f"poolings[{i}]", pooling, POOLINGS) for i, pooling in enumerate(request.poolings)),
        dimensions=request.dimensions if request.HasField("dimensions") else None,
        normalize=request.normalize if request.HasField("normalize") else None,
        numbers=plain("type", request.type, NUMBERS),
    )


def _options(request: encoding_pb2.EncodeRequest) -> EncodingOptions:
    return replace(
        vector_options(request),
        truncate=plain("truncation", request.truncation, TRUNCATES),
        prompt=request.prompt if request.HasField("prompt") else None,
    )


def write_embedding(embedding: Embedding, message: encoding_pb2.Embedding) -> None:
    """Fills the message in with the vectors of one content."""
    vectors = embedding.vectors
    if vectors.data.dtype == np.float32:
        message.values.extend(vectors.data.ravel().tolist())
    else:
        message.data = vectors.data.astype(vectors.data.dtype.newbyteorder("<"), copy=False).tobytes()
    if vectors.scales is not None:
        message.scales.extend(vectors.scales.tolist())
    message.shape.extend(vectors.shape)
    message.source_tokens, message.truncated = embedding.source_tokens, embedding.truncated
    write_timings(embedding.timings, message.timings)


def _span(span: LabelledSpan) -> encoding_pb2.LabelledSpan:
    return encoding_pb2.LabelledSpan(begin=span.begin, end=span.end, labels=_labels(span.labels))


def _labels(labels: Iterable[Label]) -> Iterator[encoding_pb2.Label]:
    return (encoding_pb2.Label(name=label.name, probability=label.probability) for label in labels)
