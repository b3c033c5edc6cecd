"""The real server in this process, on loopback, with a decoder that copies."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from prometheus_client import CollectorRegistry

from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from dragoman.v1.model_pb2_grpc import ModelServiceStub
from dragoman.v1.translation_pb2 import StreamTranslateRequest, TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from engine.loading.budget import MEGABYTE
from engine.runner import Runner
from models.decoding import Decoding
from models.encoding import EncodingDefaults
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from models.tokenizers.tokenizer import Tokenizer
from server.admission.permits import Admission
from server.admission.quotas import Quota, Quotas
from server.admission.shedding import Shedding
from server.api.documents import Documents
from server.app import serve
from server.catalog.catalog import Catalog
from server.catalog.served_model import ServedModel
from server.config import Settings
from server.grpc.health import Health
from server.grpc.listeners import open_server
from server.grpc.rpc import RpcInterceptor
from server.http.compatible.detection import Langid
from server.http.opening import HttpPort
from server.http.transport.listener import Listener
from server.identity.door import Door
from server.identity.entrance import Entrance
from server.identity.tls import Tls
from server.lifecycle import StopSignals, report_crash
from server.running import OBSERVED, start
from server.telemetry.exposition.page import Page
from server.telemetry.logs import CallLog
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.metrics.caller import CallerMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.telemetry.observed import ObservedCalls
from server.telemetry.tracing import Tracing, open_tracing
from server.text.documents.document import Limits
from server.traffic.bounds import Bounds
from server.traffic.traffic import Traffic
from server.translation.sharing.answer_cache import AnswerCache
from server.translation.translator import Translator
from tests.fakes import WAIT_S, CopyDecoder, rules_of

if TYPE_CHECKING:
    from dragoman.v1.encoding_pb2_grpc import EncodingServiceAsyncStub
    from dragoman.v1.model_pb2_grpc import ModelServiceAsyncStub
    from dragoman.v1.translation_pb2_grpc import TranslationServiceAsyncStub

ZOO = Path(__file__).parent.parent / "models" / "zoo" / "en-pt"
END, PAD = 0, 32000

TRANSLATE = "dragoman.v1.TranslationService/Translate"
STREAM = "dragoman.v1.TranslationService/StreamTranslate"

SMALL_WINDOW = (("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0))
"""A client that takes little more than nothing before it reads."""

MODEL = ServedModel(
    name="copy",
    source_languages=("en",),
    target_languages=("pt", "pt-BR"),
    max_source_tokens=128,
    max_new_tokens=128,
    max_beams=4,
    defaults=Decoding(
        num_beams=1, num_return_sequences=1, max_new_tokens=128, length_penalty=1.0, early_stopping=False
    ),
    width=4,
    encoder_layers=0,
    decoder_layers=1,
    vocabulary_size=32001,
    precision="fp32",
    execution_provider="none",
    package_sha256="0" * 64,
    checkpoint_sha256="1" * 64,
    max_contents=8,
    max_message_bytes=64 * 1024,
    encoding=EncodingDefaults(prompts={"query": "query: "}),
    workers=1,
    rows=4,
    memory_bytes=1,
    prompts={"shorten": "shorten: "},
    scores=True,
)
"""What `serving` serves. Two target languages, so that one has to be named."""


@cache
def tokenizer() -> Tokenizer:
    """The zoo model's: both sides share one vocabulary, so that a copy of the source is readable."""
    return SentencePiecePair.load(ZOO, SentencePieceSpec(end_id=END, unknown_id=1, hidden_ids=(END, PAD)))


langid = cache(Langid)
"""Loaded once for the same languages: that takes most of a second."""


@dataclass
class Serving:
    """A running server, and a client of it."""

    port: int
    server: grpc.aio.Server
    interceptor: RpcInterceptor
    """All handlers are behind it."""
    channel: grpc.aio.Channel
    decoder: CopyDecoder
    admission: Admission
    runner: Runner
    calls: ObservedCalls
    health: Health
    translator: Translator
    registry: CollectorRegistry
    http: Listener | None
    http_port: int
    """0: it has no HTTP port."""

    @property
    def url(self) -> str:
        """Of the HTTP port."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def translations(self) -> "TranslationServiceAsyncStub":
        return TranslationServiceStub(self.channel)

    @property
    def encodings(self) -> "EncodingServiceAsyncStub":
        return EncodingServiceStub(self.channel)

    @property
    def models(self) -> "ModelServiceAsyncStub":
        return ModelServiceStub(self.channel)

    def metric(self, name: str, **labels: str) -> float:
        """A sample of the server's metrics; 0 before it was first counted."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def model_metric(self, name: str, **labels: str) -> float:
        """A sample that belongs to the model."""
        return self.metric(name, model=MODEL.name, **labels)


@asynccontextmanager
async def serving(
    workers: int = 1,
    max_rows: int = 4,
    max_waiting: int = 8,
    max_contents: int = 8,
    max_message_bytes: int = 64 * 1024,
    request_timeout_s: float = 10.0,
    stream_stall_timeout_s: float = 30.0,
    channel_options: tuple[tuple[str, int], ...] = (),
    tracing: Tracing | None = None,
    log_requests: bool = False,
    log_text: bool = False,
    log_labels: bool = False,
    max_concurrent_streams: int = 2048,
    port: int = 0,
    reuse_port: bool = False,
    door: Door | None = None,
    credentials: grpc.ServerCredentials | None = None,
    quota: Quota | None = None,
    quota_clock: Callable[[], float] = time.perf_counter,
    caller_key: str | None = None,
    shedding: Shedding | None = None,
    http: bool = False,
    http_cors: tuple[str, ...] = (),
    http_hosts: tuple[str, ...] = (),
    max_connections: int = 2048,
    connection_age_s: float = 1800.0,
    tls: Tls | None = None,
    model: ServedModel = MODEL,
) -> AsyncIterator[Serving]:
    """Starts a server over a CopyDecoder, and stops it. With credentials, its channel is of no use."""
    settings = Settings(
        port=port,
        http_port=0,
        http_cors=http_cors,
        http_hosts=http_hosts,
        max_connections=max_connections,
        connection_age_s=connection_age_s,
        connection_age_grace_s=1.0,
        request_timeout_s=request_timeout_s,
        stream_stall_timeout_s=stream_stall_timeout_s,
        reuse_port=reuse_port,
        max_rows=max_rows,
        max_message_bytes=max_message_bytes,
        max_concurrent_streams=max_concurrent_streams,
        log_requests=log_requests,
        log_text=log_text,
        log_labels=log_labels,
    )
    registry = CollectorRegistry()
    metrics = ModelMetrics(ModelFamilies(registry), MODEL.name)
    decoder = CopyDecoder()
    calls = ObservedCalls(CallMetrics(registry), tracing or open_tracing(settings, "1"), CallLog(settings))
    bounds = Bounds.within(settings, None)
    traffic = Traffic.of(settings, bounds)
    quotas = Quotas(quota or Quota(), CallerMetrics(registry), quota_clock)
    entrance = Entrance(door, quotas, caller_key)
    interceptor = RpcInterceptor(OBSERVED, traffic, calls, entrance, shedding)
    server, port = open_server(settings, bounds, [interceptor], credentials)
    rules = rules_of(END, END, suppressed_ids=(PAD,), start_id=PAD)
    async with Runner(decoder, max_rows, workers, metrics) as runner:
        admission = Admission(max_waiting, runner, quotas=quotas)
        model = replace(model, max_contents=max_contents, max_message_bytes=max_message_bytes)
        cache = AnswerCache(settings.cache_mb * MEGABYTE, AnswerCacheMetrics(registry))
        translator = Translator(model, tokenizer(), rules, admission, runner.submit, metrics, cache)
        models = Catalog([translator])
        documents = Documents(Limits(bounds.document_bytes, settings.max_document_texts), traffic.documents)
        health = await start(server, models, documents, calls, traffic)
        health.set(serving=True)
        listener, http_port = None, 0
        if http:
            own = HttpPort(settings, langid)
            page = Page(registry)
            faces = (
                models,
                documents,
                calls,
                entrance,
                traffic,
                lambda: health.state,
                lambda wanted: asyncio.to_thread(page.write, wanted),
            )
            listener = await own.open(*faces, tls, door is not None)
            http_port = int(own.address.rpartition(":")[2])
        watch = asyncio.create_task(report(runner, admission, health))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", channel_options) as channel:
            try:
                own_parts = decoder, admission, runner, calls, health, translator, registry, listener, http_port
                yield Serving(port, server, interceptor, channel, *own_parts)
            finally:
                decoder.gate.open()
                watch.cancel()
                if listener is not None:
                    listener.cut()
                    await listener.stop()
                await server.stop(None)


async def report(runner: Runner, admission: Admission, health: Health) -> None:
    """As server.app does with its only model."""
    await report_crash(asyncio.wrap_future(runner.failure), admission)
    health.set(serving=False)


async def serve_here(settings: Settings) -> int:
    """`python -m server` in this process, until a signal. Returns the exit code."""
    with closing(StopSignals(settings.grace_period_s)) as signals:
        return await serve(settings, signals)


@dataclass
class Refusal:
    """What a client is told of an error."""

    code: grpc.StatusCode
    message: str
    info: ErrorInfo
    fields: list[str]
    retry_delay_s: float | None
    pushback_ms: str | None


def refusal(error: grpc.aio.AioRpcError) -> Refusal:
    """Takes an error apart."""
    trailing = dict(error.trailing_metadata() or ())
    status = Status.FromString(trailing["grpc-status-details-bin"])
    info, bad_request, retry = ErrorInfo(), BadRequest(), RetryInfo()
    unpacked = {message.DESCRIPTOR.name: message for message in (info, bad_request, retry)}
    found = {detail.TypeName().rpartition(".")[2] for detail in status.details}
    for detail in status.details:
        assert detail.Unpack(unpacked[detail.TypeName().rpartition(".")[2]])
    assert len(found) == len(status.details), "a detail type occurs twice"
    number, _ = error.code().value
    assert (status.code, status.message) == (number, error.details())
    return Refusal(
        code=error.code(),
        message=status.message,
        info=info,
        fields=[violation.field for violation in bad_request.field_violations],
        retry_delay_s=retry.retry_delay.ToTimedelta().total_seconds() if "RetryInfo" in found else None,
        pushback_ms=trailing.get("grpc-retry-pushback-ms"),
    )


async def eventually(condition: Callable[[], bool]) -> None:
    """Lets the event loop run until the condition holds. For what another thread does in its own time."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


async def eventually_not_serving(server: Serving, name: str) -> None:
    """Watches the health of a service until it is so."""
    health: Any = HealthStub(server.channel)  # whose types do not know that it has methods
    async for state in health.Watch(HealthCheckRequest(service=name)):
        if state.status == HealthCheckResponse.NOT_SERVING:
            return


async def held(server: Serving) -> None:
    """Waits until a worker stands at the closed gate, with its requests on board."""
    await asyncio.to_thread(server.decoder.gate.wait_until_held)


def translate_request(*contents: str, decoding: DecodingOptions | None = None, **more: Any) -> TranslateRequest:
    return TranslateRequest(contents=contents, target_language_code="pt", decoding=decoding, **more)


def stream_request(content: str) -> StreamTranslateRequest:
    return StreamTranslateRequest(content=content, target_language_code="pt")


async def refused(call: Awaitable[object]) -> Refusal:
    """What a call that must fail is told."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return refusal(caught.value)


async def texts(server: Serving, *contents: str, decoding: DecodingOptions | None = None) -> list[str]:
    """The best hypothesis of every content."""
    response = await server.translations.Translate(translate_request(*contents, decoding=decoding))
    return [translation.hypotheses[0].text for translation in response.translations]
