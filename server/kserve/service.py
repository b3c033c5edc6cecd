"""inference.GRPCInferenceService: tensors to plain values and back, for what `server.translation` does."""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from functools import partial

import grpc
import numpy as np

from server.catalog.catalog import Catalog
from server.errors import EmptyContents, ModelNotFound, quoted
from server.identity.entrance import require
from server.identity.identity import Scope
from server.kserve.errors import DecoupledModel, InvalidParameter
from server.kserve.parameters import of_encoding, of_translation
from server.kserve.repository import (
    EMBEDDING,
    FINISH_REASON,
    SCORE,
    TEXT,
    TEXT_DELTA,
    TOKENS,
    TRANSLATION,
    VERSION,
    Entry,
    Repository,
    Task,
)
from server.kserve.statistics import Statistics
from server.kserve.streams import Put, interleaved
from server.kserve.tensors import BYTES, FP32, INT32, Declared, Tensor, is_raw, texts_of, wanted, write
from server.kserve.v2 import inference_pb2, inference_pb2_grpc
from server.kserve.v2.inference_pb2 import ModelInferRequest as Request
from server.kserve.v2.inference_pb2 import ModelInferResponse as Response
from server.kserve.v2.inference_pb2 import ModelStreamInferResponse as Streamed
from server.kserve.watched import FINAL, StreamedRequest
from server.telemetry.observed import ObservedCalls
from server.traffic.held import Held
from server.translation.answer import TextDelta, Translation
from server.translation.targets import TargetText
from server.translation.translator import Translator

SERVICE: str = inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
INFER = f"{SERVICE}/ModelInfer"
"""What a request is called in metrics and logs, also one of a stream, which is a call of its own."""
PLATFORM = "dragoman"
EXTENSIONS = ("model_configuration", "statistics")
"""Clients decide by them what to ask."""
AT_ONCE = 32
"""Requests of a stream that are worked on at the same time."""
DATA_TYPES = {
    BYTES: inference_pb2.TYPE_STRING,
    FP32: inference_pb2.TYPE_FP32,
    INT32: inference_pb2.TYPE_INT32,
}


def register(
    server: grpc.aio.Server, models: Catalog[Translator], calls: ObservedCalls, held: Held, version: str
) -> None:
    """Adds the service to a server. `version`: of the server."""
    servicer = InferenceService(models, calls, held, version)
    inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)


class InferenceService(inference_pb2_grpc.GRPCInferenceServiceServicer):
    """See v2/inference.proto."""

    def __init__(self, models: Catalog[Translator], calls: ObservedCalls, held: Held, version: str) -> None:
        self._repository, self._calls, self._held, self._version = Repository(models), calls, held, version
        self._statistics = Statistics()

    async def ServerLive(
        self, request: inference_pb2.ServerLiveRequest, context: object
    ) -> inference_pb2.ServerLiveResponse:
        """It answers."""
        return inference_pb2.ServerLiveResponse(live=True)

    async def ServerReady(
        self, request: inference_pb2.ServerReadyRequest, context: object
    ) -> inference_pb2.ServerReadyResponse:
        """Some model is."""
        return inference_pb2.ServerReadyResponse(ready=any(entry.translator.open for entry in self._repository))

    async def ModelReady(
        self, request: inference_pb2.ModelReadyRequest, context: object
    ) -> inference_pb2.ModelReadyResponse:
        """One that is not there is not."""
        try:
            entry = self._repository.find(request.name, request.version)
        except ModelNotFound:
            return inference_pb2.ModelReadyResponse(ready=False)
        return inference_pb2.ModelReadyResponse(ready=entry.translator.open)

    async def ServerMetadata(
        self, request: inference_pb2.ServerMetadataRequest, context: object
    ) -> inference_pb2.ServerMetadataResponse:
        """What the server is."""
        return inference_pb2.ServerMetadataResponse(name=PLATFORM, version=self._version, extensions=EXTENSIONS)

    async def ModelMetadata(
        self, request: inference_pb2.ModelMetadataRequest, context: object
    ) -> inference_pb2.ModelMetadataResponse:
        """The tensors of a model, with the batch."""
        entry = self._repository.find(request.name, request.version)
        return inference_pb2.ModelMetadataResponse(
            name=entry.name,
            versions=[VERSION],
            platform=PLATFORM,
            inputs=[_metadata(TEXT)],
            outputs=map(_metadata, entry.outputs),
        )

    async def ModelConfig(
        self, request: inference_pb2.ModelConfigRequest, context: object
    ) -> inference_pb2.ModelConfigResponse:
        """The same as Triton's configuration, whose dimensions are without the batch."""
        entry = self._repository.find(request.name, request.version)
        inputs = inference_pb2.ModelInput(name=TEXT.name, data_type=DATA_TYPES[TEXT.datatype], dims=TEXT.dims)
        return inference_pb2.ModelConfigResponse(
            config=inference_pb2.ModelConfig(
                name=entry.name,
                platform=PLATFORM,
                backend=PLATFORM,
                max_batch_size=entry.max_batch_size,
                input=[inputs],
                output=[
                    inference_pb2.ModelOutput(name=one.name, data_type=DATA_TYPES[one.datatype], dims=one.dims)
                    for one in entry.outputs
                ],
                model_transaction_policy=inference_pb2.ModelTransactionPolicy(decoupled=entry.decoupled),
            )
        )

    async def ModelStatistics(
        self, request: inference_pb2.ModelStatisticsRequest, context: object
    ) -> inference_pb2.ModelStatisticsResponse:
        """What became of the requests for a model, or for each of them."""
        asked = [self._repository.find(request.name, request.version)] if request.name else self._repository
        statistics = [self._statistics.of(entry.name, VERSION) for entry in asked]
        return inference_pb2.ModelStatisticsResponse(model_stats=statistics)

    async def RepositoryIndex(
        self, request: inference_pb2.RepositoryIndexRequest, context: object
    ) -> inference_pb2.RepositoryIndexResponse:
        """Every model. Raises InvalidParameter."""
        if request.repository_name:
            named = f"is {quoted(request.repository_name)}; there is one repository, without a name: leave it out"
            raise InvalidParameter("repository_name", named)
        index = inference_pb2.RepositoryIndexResponse()
        for entry in self._repository:
            if entry.translator.open or not request.ready:
                state = "READY" if entry.translator.open else "UNAVAILABLE"
                index.models.add(name=entry.name, version=VERSION, state=state)
        return index

    async def ModelInfer(self, request: Request, context: object) -> Response:
        """Answers a request with one response."""
        entry = self._entry(request)
        with self._statistics.request(entry.name):
            if entry.decoupled:
                raise DecoupledModel(entry.name)
            return await self._infer(entry, request)

    async def ModelStreamInfer(
        self, requests: AsyncIterator[Request], context: grpc.aio.ServicerContext[Request, Streamed]
    ) -> AsyncGenerator[Streamed]:
        """Answers each request by itself: one that fails does not end the stream."""
        work = partial(self._answer, tuple(context.invocation_metadata() or ()))
        async with aclosing(interleaved(requests, work, AT_ONCE)) as responses:
            async for response in responses:
                yield response

    async def _answer(self, metadata: Sequence[tuple[str, str | bytes]], request: Request, put: Put[Streamed]) -> None:
        """Puts all responses to a request of a stream, the last of which says so."""
        caller = StreamedRequest(metadata, request, put)
        async with self._calls.observed(INFER, caller):
            self._held.begin(request.ByteSize(), caller.name)
            entry = self._entry(request)
            with self._statistics.request(entry.name):
                async with aclosing(self._responses(entry, request)) as responses:
                    async for response in responses:
                        await put(Streamed(infer_response=response))

    async def _responses(self, entry: Entry, request: Request) -> AsyncGenerator[Response]:
        if entry.decoupled:
            async with aclosing(self._stream(entry, request)) as responses:
                async for response in responses:
                    yield response
        else:
            response = await self._infer(entry, request)
            response.parameters[FINAL].bool_param = True
            yield response

    def _entry(self, request: Request) -> Entry:
        """The model that is asked, if the caller may ask it. Raises ModelNotFound or ScopeMissing."""
        entry = self._repository.find(request.model_name, request.model_version, "model_name")
        require(Scope.ENCODE if entry.task is Task.ENCODE else Scope.TRANSLATE)
        return entry

    async def _infer(self, entry: Entry, request: Request) -> Response:
        texts, names = _checked(entry, request)
        if entry.task is Task.ENCODE:
            options = entry.encoding(of_encoding(request.parameters))
            vectors = [one.vectors.data.ravel() for one in await entry.translator.encode(texts, options)]
            found = [Tensor(EMBEDDING, FP32, (len(vectors), len(vectors[0])), np.concatenate(vectors).tolist())]
        else:
            asked = of_translation(request.parameters)
            translations = await entry.translator.translate(
                texts, asked.route, asked.options, asked.no_cache, asked.prompt
            )
            found = list(_tensors(translations))
        return _response(entry, request, found, names)

    async def _stream(self, entry: Entry, request: Request) -> AsyncGenerator[Response]:
        [text], names = _checked(entry, request)
        asked = of_translation(request.parameters)
        events = entry.translator.stream(text, asked.route, asked.options, asked.no_cache, asked.prompt)
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Translation):
                    yield _response(entry, request, list(_tensors([event])), names, final=True)
                elif TEXT_DELTA.name in names:
                    yield _response(entry, request, [_delta(event)], names, final=False)


def _checked(entry: Entry, request: Request) -> tuple[list[str], list[str]]:
    """The texts, and the outputs that are wanted. Raises InvalidTensor or TooManyContents."""
    texts = texts_of(request, TEXT.name, entry.max_batch_size)
    if entry.decoupled and not texts:
        raise EmptyContents
    return texts, wanted(request, entry.outputs)


def _metadata(tensor: Declared) -> inference_pb2.ModelMetadataResponse.TensorMetadata:
    return inference_pb2.ModelMetadataResponse.TensorMetadata(
        name=tensor.name, datatype=tensor.datatype, shape=(-1, *tensor.dims)
    )


def _delta(event: TextDelta) -> Tensor:
    return Tensor(TEXT_DELTA.name, BYTES, (1, 1), [event.text])


def _tensors(translations: Sequence[Translation]) -> Iterator[Tensor]:
    """[texts, hypotheses]: of one that has fewer than others, the missing are empty, and their scores not a number."""
    most = max(len(one.hypotheses) for one in translations)
    rows: list[TargetText | None] = [
        one.hypotheses[index] if index < len(one.hypotheses) else None for one in translations for index in range(most)
    ]
    shape = len(translations), most
    yield Tensor(TRANSLATION.name, BYTES, shape, [row.text if row else "" for row in rows])
    yield Tensor(SCORE.name, FP32, shape, [row.score if row else math.nan for row in rows])
    yield Tensor(TOKENS.name, INT32, shape, [row.tokens if row else 0 for row in rows])
    yield Tensor(FINISH_REASON.name, BYTES, shape, [row.finish_reason.value if row else "" for row in rows])


def _response(
    entry: Entry, request: Request, tensors: Sequence[Tensor], names: Sequence[str], final: bool | None = None
) -> Response:
    """With the named of the tensors, in the order of the names. `final`: None, where there is one response."""
    response = Response(model_name=entry.name, model_version=VERSION, id=request.id)
    by_name = {tensor.name: tensor for tensor in tensors}
    write(response, [by_name[name] for name in names if name in by_name], is_raw(request))
    if final is not None:
        response.parameters[FINAL].bool_param = final
    return response
