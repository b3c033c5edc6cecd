"""A real gRPC server on loopback whose translations are upper case: what the client and the command line talk to."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from dragoman.v1 import decoding_pb2, encoding_pb2, model_pb2, translation_pb2
from dragoman.v1.encoding_pb2_grpc import EncodingServiceServicer, add_EncodingServiceServicer_to_server
from dragoman.v1.model_pb2_grpc import ModelServiceServicer, add_ModelServiceServicer_to_server
from dragoman.v1.translation_pb2_grpc import TranslationServiceServicer, add_TranslationServiceServicer_to_server

WAIT_S = 30.0
"""How long a test waits for what must happen."""
TOO_LONG = "contents[0] has 1300 tokens; the model takes 512: split it into sentences (SOURCE_TOO_LONG)"
"""What the command line says of a text that is "too long"."""

TIMINGS = decoding_pb2.Timings(
    queue=Duration(nanos=1_000_000),
    encode=Duration(nanos=2_000_000),
    decode=Duration(nanos=30_000_000),
    total=Duration(nanos=33_000_000),
    steps=3,
    tokenize=Duration(nanos=100_000),
    detokenize=Duration(nanos=200_000),
    mean_batch_rows=2.5,
)

MODEL = model_pb2.Model(
    name="en-pt",
    source_language_codes=["en"],
    target_language_codes=["pt"],
    max_source_tokens=512,
    max_new_tokens=256,
    max_beams=16,
    default_decoding=decoding_pb2.DecodingOptions(
        num_beams=4,
        num_return_sequences=1,
        max_new_tokens=256,
        length_penalty=0.5,
        early_stopping=decoding_pb2.EARLY_STOPPING_NEVER,
    ),
    width=2,
    encoder_layers=6,
    decoder_layers=1,
    vocabulary_size=32001,
    precision="fp32",
    execution_provider="CPUExecutionProvider",
    package_sha256="ab" * 32,
    checkpoint_sha256="cd" * 32,
    state=model_pb2.MODEL_STATE_SERVING,
    workers=2,
    rows=64,
    memory_bytes=1_070_000_000,
    tasks=[model_pb2.TASK_TRANSLATE, model_pb2.TASK_ENCODE],
    default_encoding=model_pb2.EncodingDefaults(
        poolings=[encoding_pb2.POOLING_MEAN, encoding_pb2.POOLING_SUM_SQRT],
        dimensions=4,
        normalize=True,
        prompts={"query": "query: "},
        prompt="query",
        offered=[encoding_pb2.POOLING_MEAN, encoding_pb2.POOLING_ATTENTION],
    ),
    prompts={"summarize": "summarize: "},
    prompt="summarize",
    labels=["long", "short"],
    labels_tokens=True,
    labels_pairs=True,
    server_version="1.2.3",
)

Context = aio.ServicerContext[Any, Any]


@dataclass
class Failure:
    """How the next call fails."""

    code: grpc.StatusCode
    message: str = "it failed"
    details: tuple[Message, ...] = ()
    pushback_ms: int | None = None
    raw_details: bytes | None = None

    async def abort(self, context: Context) -> NoReturn:
        metadata: list[tuple[str, str | bytes]] = []
        if self.details:
            status = Status(code=self.code.value[0], message=self.message, details=list(map(_packed, self.details)))
            metadata.append(("grpc-status-details-bin", status.SerializeToString()))
        if self.raw_details is not None:
            metadata += [("grpc-status-details-bin", self.raw_details), ("x-request-id", "1")]
        if self.pushback_ms is not None:
            metadata.append(("grpc-retry-pushback-ms", str(self.pushback_ms)))
        await context.abort(self.code, self.message, tuple(metadata))


def overloaded(pushback_ms: int | None = None) -> Failure:
    """As a Dragoman server refuses what it has no room for."""
    details = (ErrorInfo(reason="OVERLOADED", domain="dragoman"), RetryInfo(retry_delay=Duration(nanos=10_000_000)))
    return Failure(grpc.StatusCode.UNAVAILABLE, "the queue is full", details, pushback_ms)


def target_score(target: str) -> translation_pb2.TargetScore:
    """Two tokens: the target, and its end."""
    tokens = [
        translation_pb2.TargetToken(id=7, text=target, log_prob=-len(target)),
        translation_pb2.TargetToken(id=0, begin=len(target), log_prob=-0.5),
    ]
    log_prob = -len(target) - 0.5
    return translation_pb2.TargetScore(
        text=target, log_prob=log_prob, score=log_prob / 2, tokens=2, target_tokens=tokens
    )


def too_long(index: int) -> Failure:
    """As a Dragoman server refuses a text of too many tokens."""
    message = f"contents[{index}] has 1300 tokens; the model takes 512: split it into sentences"
    details = (
        ErrorInfo(reason="SOURCE_TOO_LONG", domain="dragoman", metadata={"tokens": "1300", "max_tokens": "512"}),
        BadRequest(field_violations=[BadRequest.FieldViolation(field=f"contents[{index}]", description=message)]),
    )
    return Failure(grpc.StatusCode.INVALID_ARGUMENT, message, details)


@dataclass
class FakeServer(TranslationServiceServicer, EncodingServiceServicer, ModelServiceServicer):
    """Translates into upper case. Refuses a content "too long"; never answers one that starts with "hold"."""

    failures: deque[Failure] = field(default_factory=deque)
    """What the next calls fail with, one each."""
    rendezvous: int = 1
    """So many Translate calls must be under way at once before the first is answered."""
    drop_results: int = 0
    """A bug: so many results of each call are left out."""

    max_contents: int = 0
    """Most contents of a call, and what the model says of it. 0: it does not say, and takes any number."""

    target: str = ""
    requests: list[Any] = field(default_factory=list)
    """All but those of GetModel, which clients make on their own."""
    model_requests: list[model_pb2.GetModelRequest] = field(default_factory=list)
    call_times: list[float] = field(default_factory=list)
    """When each attempt of any call came, by time.monotonic."""
    most_active: int = 0
    """Most Translate calls that were under way at once."""
    held: threading.Event = field(default_factory=threading.Event)
    """A content that starts with "hold" has come."""
    left: threading.Event = field(default_factory=threading.Event)
    """A call that was waiting has been cancelled."""
    _active: int = 0
    _met: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def contents(self) -> list[str]:
        """All texts that came, in the order they came."""
        given = [text for request in self.requests for text in getattr(request, "contents", ())]
        return [text.content if isinstance(text, translation_pb2.Candidates) else text for text in given]

    async def Translate(
        self, request: translation_pb2.TranslateRequest, context: Context
    ) -> translation_pb2.TranslateResponse:
        await self._arrive(request, context)
        await self._check_count(request.contents, context)
        with self._counted():
            await self._meet()
            for index, text in enumerate(request.contents):
                await self._refuse_or_hold(text, index, context)
        results = [translation(text, request.decoding) for text in request.contents]
        return translation_pb2.TranslateResponse(translations=results[self.drop_results :], model="en-pt")

    async def StreamTranslate(
        self, request: translation_pb2.StreamTranslateRequest, context: Context
    ) -> AsyncIterator[translation_pb2.StreamTranslateResponse]:
        await self._arrive(request, context)
        for part in request.content.upper().split(" "):
            yield translation_pb2.StreamTranslateResponse(text_delta=part)
            await self._refuse_or_hold(request.content, 0, context)
        result = translation(request.content.replace(" ", ""), request.decoding)
        yield translation_pb2.StreamTranslateResponse(translation=result)

    async def Encode(self, request: encoding_pb2.EncodeRequest, context: Context) -> encoding_pb2.EncodeResponse:
        await self._arrive(request, context)
        await self._check_count(request.contents, context)
        for index, text in enumerate(request.contents):
            await self._refuse_or_hold(text, index, context)
        scale = 0.5 if request.normalize else 1.0
        vectors = [[scale * len(text), scale * 0.5] for text in request.contents]
        results = [encoding_pb2.Embedding(values=v, source_tokens=2, timings=TIMINGS) for v in vectors]
        return encoding_pb2.EncodeResponse(embeddings=results[self.drop_results :], model="en-pt")

    async def Classify(self, request: encoding_pb2.ClassifyRequest, context: Context) -> encoding_pb2.ClassifyResponse:
        """Every text is long, and is an entity."""
        await self._arrive(request, context)
        await self._check_count(request.contents, context)
        long = encoding_pb2.Label(name="long", probability=0.75)
        found = [
            encoding_pb2.Classification(
                labels=[long],
                spans=[encoding_pb2.LabelledSpan(begin=0, end=len(text), labels=[long])],
                source_tokens=2,
                timings=TIMINGS,
            )
            for text in request.contents
        ]
        return encoding_pb2.ClassifyResponse(classifications=found[self.drop_results :], model="en-pt")

    async def TranslateAndEncode(
        self, request: translation_pb2.TranslateAndEncodeRequest, context: Context
    ) -> translation_pb2.TranslateAndEncodeResponse:
        await self._arrive(request, context)
        await self._check_count(request.contents, context)
        for index, text in enumerate(request.contents):
            await self._refuse_or_hold(text, index, context)
        vectors = [encoding_pb2.Embedding(values=[len(text)], source_tokens=2) for text in request.contents]
        return translation_pb2.TranslateAndEncodeResponse(
            translations=[translation(text, request.decoding) for text in request.contents],
            embeddings=vectors[self.drop_results :],
            model="en-pt",
        )

    async def Score(self, request: translation_pb2.ScoreRequest, context: Context) -> translation_pb2.ScoreResponse:
        """The more characters a target has, the less probable it is."""
        await self._arrive(request, context)
        await self._check_count([target for one in request.contents for target in one.targets], context)
        for index, one in enumerate(request.contents):
            await self._refuse_or_hold(one.content, index, context)
        results = [
            translation_pb2.ScoredContent(targets=map(target_score, one.targets), source_tokens=2, timings=TIMINGS)
            for one in request.contents
        ]
        return translation_pb2.ScoreResponse(contents=results[self.drop_results :], model="en-pt")

    def TranslateDocument(self, request: object, context: Context) -> NoReturn:
        raise NotImplementedError  # tests/server/grpc have it of a real server

    def StreamEncode(self, requests: object, context: Context) -> NoReturn:
        raise NotImplementedError  # the clients send requests one by one, and each again where that may help

    async def ListModels(self, request: model_pb2.ListModelsRequest, context: Context) -> model_pb2.ListModelsResponse:
        await self._arrive(request, context)
        return model_pb2.ListModelsResponse(models=[MODEL])

    async def GetModel(self, request: model_pb2.GetModelRequest, context: Context) -> model_pb2.GetModelResponse:
        self.model_requests.append(request)
        if request.name not in ("", MODEL.name):
            details = (ErrorInfo(reason="MODEL_NOT_FOUND", domain="dragoman"),)
            await Failure(grpc.StatusCode.NOT_FOUND, f"there is no model {request.name}", details).abort(context)
        model = model_pb2.Model()
        model.CopyFrom(MODEL)
        model.max_contents = self.max_contents
        return model_pb2.GetModelResponse(model=model)

    async def Reload(self, request: model_pb2.ReloadRequest, context: Context) -> model_pb2.ReloadResponse:
        await self._arrive(request, context)
        return model_pb2.ReloadResponse(model=MODEL, former_package_sha256=MODEL.package_sha256)

    async def _arrive(self, request: Message, context: Context) -> None:
        self.call_times.append(time.monotonic())
        self.requests.append(request)
        if self.failures:
            await self.failures.popleft().abort(context)

    async def _check_count(self, contents: Sequence[str], context: Context) -> None:
        if self.max_contents and len(contents) > self.max_contents:
            details = (ErrorInfo(reason="TOO_MANY_CONTENTS", domain="dragoman"),)
            await Failure(grpc.StatusCode.INVALID_ARGUMENT, "too many contents", details).abort(context)

    async def _refuse_or_hold(self, text: str, index: int, context: Context) -> None:
        if text == "too long":
            await too_long(index).abort(context)
        if text.startswith("hold"):
            self.held.set()
            with self._noticing_cancellation():
                await asyncio.get_running_loop().create_future()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._active += 1
        self.most_active = max(self.most_active, self._active)
        try:
            yield
        finally:
            self._active -= 1

    async def _meet(self) -> None:
        if self._active == self.rendezvous:
            self._met.set()
        with self._noticing_cancellation():
            await self._met.wait()

    @contextmanager
    def _noticing_cancellation(self) -> Iterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            self.left.set()
            raise


def translation(text: str, decoding: decoding_pb2.DecodingOptions) -> translation_pb2.Translation:
    """Upper case, and as many more hypotheses as were asked for. "wrong" has a guard, and one of the future."""
    hypotheses = [
        translation_pb2.Hypothesis(
            text=text.upper() + "!" * rank,
            score=-0.5 - rank,
            tokens=len(text.split()) + 1 + rank,
            finish_reason=decoding_pb2.FINISH_REASON_LENGTH if rank else decoding_pb2.FINISH_REASON_END_TOKEN,
            target_tokens=[
                translation_pb2.TargetToken(id=7, text=text.upper(), log_prob=-0.25),
                translation_pb2.TargetToken(begin=len(text), log_prob=-0.5),
            ]
            if decoding.with_tokens
            else [],
        )
        for rank in range(max(1, decoding.num_return_sequences))
    ]
    wrong, tokens = text == "wrong", len(text.split()) + 1
    guards = [translation_pb2.GUARD_COPY, 99] if wrong else []
    retried = wrong and decoding.retry_on_guard
    return translation_pb2.Translation(
        hypotheses=hypotheses,
        source_tokens=tokens,
        timings=TIMINGS,
        guards=guards,  # type: ignore[arg-type]
        retried=retried,
    )


@contextmanager
def serving(
    server: FakeServer, credentials: grpc.ServerCredentials | None = None, port: int = 0
) -> Iterator[FakeServer]:
    """Serves on a thread with an event loop of its own until the block ends. Port 0: any that is free."""
    started, ended = Future[asyncio.AbstractEventLoop](), asyncio.Event()

    async def serve() -> None:
        grpc_server = aio.server()
        server.target = f"127.0.0.1:{_listen(grpc_server, server, credentials, port)}"
        health_pb2_grpc.add_HealthServicer_to_server(await _health(), grpc_server)
        await grpc_server.start()
        started.set_result(asyncio.get_running_loop())
        await ended.wait()
        await grpc_server.stop(grace=None)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop = started.result(WAIT_S)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(WAIT_S)


def _listen(grpc_server: aio.Server, server: FakeServer, credentials: grpc.ServerCredentials | None, port: int) -> int:
    add_TranslationServiceServicer_to_server(server, grpc_server)
    add_EncodingServiceServicer_to_server(server, grpc_server)
    add_ModelServiceServicer_to_server(server, grpc_server)
    if credentials:
        return grpc_server.add_secure_port(f"127.0.0.1:{port}", credentials)
    return grpc_server.add_insecure_port(f"127.0.0.1:{port}")


async def _health() -> health.aio.HealthServicer:
    servicer = health.aio.HealthServicer()
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    await servicer.set("dragoman.v1.EncodingService", health_pb2.HealthCheckResponse.NOT_SERVING)
    return servicer


def _packed(detail: Message) -> Packed:
    packed = Packed()
    packed.Pack(detail)
    return packed
