"""`AsyncClient`: `dragoman.client.Client` for asyncio, with the same methods and the same promises."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest

from dragoman.calls.attempts import Calls
from dragoman.calls.awaited import answered, streamed_async
from dragoman.channel import DEFAULT_TARGET, TlsOptions, Token, open_aio_channels
from dragoman.client import DEFAULT_TIMEOUT_S, RELOAD_TIMEOUT_S
from dragoman.errors import rpc_errors
from dragoman.methods import AsyncMethods, reach
from dragoman.results.classification import Classification
from dragoman.results.document import DocumentProgress, TranslatedDocument
from dragoman.results.embedding import Embedding
from dragoman.results.scores import Scores
from dragoman.results.server import Health, Model, Reloaded
from dragoman.results.translation import TextDelta, Translation
from dragoman.v1.model_pb2 import GetModelRequest, ListModelsRequest, ReloadRequest
from dragoman.wire import documents, encoding, labels, messages, models, scoring
from dragoman.wire.documents import DocumentFormat, DocumentOptions
from dragoman.wire.encoding import EncodingOptions, TranslateAndEncodeOptions
from dragoman.wire.given import check_name, checked, deadline, listed
from dragoman.wire.labels import ClassifyOptions
from dragoman.wire.messages import Texts, TranslationOptions
from dragoman.wire.scoring import ScoreOptions

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")

if TYPE_CHECKING:  # gRPC's classes take no parameters at run time
    AsyncMethod = Callable[[AsyncMethods], aio.UnaryUnaryMultiCallable[Q, R]]


class AsyncClient:
    """A connection to a Dragoman server for asyncio. Make it inside the event loop that uses it.

    Its methods are those of `Client`; cancelling one cancels it on the server.
    """

    def __init__(
        self,
        target: str | Sequence[str] = DEFAULT_TARGET,
        *,
        tls: TlsOptions | None = None,
        token: Token = None,
        wait_for_ready: bool = True,
        hedge_after_s: float | None = None,
    ) -> None:
        self._servers = [AsyncMethods(channel, token) for channel in open_aio_channels(target, tls)]
        loop = asyncio.get_running_loop()
        self._calls = Calls(self._servers, reach, wait_for_ready, hedge_after_s, loop)
        self._most_contents: dict[str, int] = {}
        """How many texts a request may have, of every model that was asked about."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connections. What is still under way on them raises Cancelled."""
        self._calls.close()
        for server in self._servers:
            await server.channel.close()

    @overload
    async def translate(
        self, texts: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> Translation: ...
    @overload
    async def translate(
        self, texts: Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> list[Translation]: ...
    async def translate(
        self, texts: str | Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> Translation | list[Translation]:
        """See `Client.translate`."""
        given = listed(texts)
        most = await self._most(len(given), options.get("model", ""), timeout_s)
        requests = messages.translate_requests(given, options, most)
        results = await self._collect(
            lambda server: server.translation.Translate, requests, messages.translations, timeout_s
        )
        return results[0] if isinstance(texts, str) else results

    async def stream_translate(
        self, text: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> AsyncGenerator[TextDelta | Translation]:
        """See `Client.stream_translate`. Leave it early only through `contextlib.aclosing`."""
        request = messages.stream_request(text, options)

        def start(server: AsyncMethods, timeout_s: float, waits: bool) -> Any:
            return server.translation.StreamTranslate(
                request, timeout=timeout_s, wait_for_ready=waits, metadata=server.metadata
            )

        async with aclosing(streamed_async(self._calls, start, deadline(timeout_s))) as events:
            async for event in events:
                yield messages.stream_event(event)

    async def translate_document(
        self,
        document: bytes,
        format: DocumentFormat,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **options: Unpack[DocumentOptions],
    ) -> AsyncGenerator[DocumentProgress | TranslatedDocument]:
        """See `Client.translate_document`. Leave it early only through `contextlib.aclosing`."""
        request = documents.document_request(document, format, options)

        def start(server: AsyncMethods, timeout_s: float, waits: bool) -> Any:
            return server.translation.TranslateDocument(
                request, timeout=timeout_s, wait_for_ready=waits, metadata=server.metadata
            )

        async with aclosing(streamed_async(self._calls, start, deadline(timeout_s))) as events:
            async for event in events:
                yield documents.document_event(event)

    @overload
    async def encode(
        self, texts: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[EncodingOptions]
    ) -> Embedding: ...
    @overload
    async def encode(
        self, texts: Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[EncodingOptions]
    ) -> list[Embedding]: ...
    async def encode(
        self, texts: str | Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[EncodingOptions]
    ) -> Embedding | list[Embedding]:
        """See `Client.encode`."""
        given = listed(texts)
        most = await self._most(len(given), options.get("model", ""), timeout_s)
        requests = encoding.encode_requests(given, options, most)
        results = await self._collect(lambda server: server.encoding.Encode, requests, encoding.embeddings, timeout_s)
        return results[0] if isinstance(texts, str) else results

    async def stream_encode(
        self, texts: Iterable[str], *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[EncodingOptions]
    ) -> AsyncGenerator[Embedding]:
        """See `Client.stream_encode`. Leave it early only through `contextlib.aclosing`."""
        most = await self._most(2, options.get("model", ""), timeout_s)
        requests = encoding.encode_requests(checked(texts), options, most)
        given = self._each(lambda server: server.encoding.Encode, requests, encoding.embeddings, timeout_s)
        async with aclosing(given) as vectors:
            async for vector in vectors:
                yield vector

    @overload
    async def classify(
        self, texts: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[ClassifyOptions]
    ) -> Classification: ...
    @overload
    async def classify(
        self, texts: Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[ClassifyOptions]
    ) -> list[Classification]: ...
    async def classify(
        self, texts: str | Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[ClassifyOptions]
    ) -> Classification | list[Classification]:
        """See `Client.classify`."""
        given = listed(texts)
        most = await self._most(len(given), options.get("model", ""), timeout_s)
        requests = labels.classify_requests(given, options, most)
        results = await self._collect(
            lambda server: server.encoding.Classify, requests, labels.classifications, timeout_s
        )
        return results[0] if isinstance(texts, str) else results

    @overload
    async def translate_and_encode(
        self, texts: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslateAndEncodeOptions]
    ) -> tuple[Translation, Embedding]: ...
    @overload
    async def translate_and_encode(
        self, texts: Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslateAndEncodeOptions]
    ) -> list[tuple[Translation, Embedding]]: ...
    async def translate_and_encode(
        self,
        texts: str | Texts,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **options: Unpack[TranslateAndEncodeOptions],
    ) -> tuple[Translation, Embedding] | list[tuple[Translation, Embedding]]:
        """See `Client.translate_and_encode`."""
        given = listed(texts)
        most = await self._most(len(given), options.get("model", ""), timeout_s)
        requests = encoding.translate_and_encode_requests(given, options, most)
        both = encoding.translations_and_embeddings
        results = await self._collect(lambda server: server.translation.TranslateAndEncode, requests, both, timeout_s)
        return results[0] if isinstance(texts, str) else results

    @overload
    async def score(
        self,
        texts: str,
        targets: Sequence[str],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **options: Unpack[ScoreOptions],
    ) -> Scores: ...
    @overload
    async def score(
        self,
        texts: Texts,
        targets: Sequence[Sequence[str]],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **options: Unpack[ScoreOptions],
    ) -> list[Scores]: ...
    async def score(
        self,
        texts: str | Texts,
        targets: Sequence[str] | Sequence[Sequence[str]],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **options: Unpack[ScoreOptions],
    ) -> Scores | list[Scores]:
        """See `Client.score`."""
        pairs = scoring.paired(texts, targets)
        most = await self._most(len(pairs), options.get("model", ""), timeout_s)
        requests = scoring.score_requests(pairs, options, most)
        results = await self._collect(lambda server: server.translation.Score, requests, scoring.scores, timeout_s)
        return results[0] if isinstance(texts, str) else results

    async def models(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[Model]:
        """See `Client.models`."""
        response = await self._ask(lambda server: server.model.ListModels, ListModelsRequest(), timeout_s)
        return [models.model(message) for message in response.models]

    async def model(self, name: str = "", *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Model:
        """See `Client.model`."""
        check_name("name", name)
        response = await self._ask(lambda server: server.model.GetModel, GetModelRequest(name=name), timeout_s)
        return models.model(response.model)

    async def reload(self, name: str = "", *, timeout_s: float = RELOAD_TIMEOUT_S) -> Reloaded:
        """See `Client.reload`."""
        check_name("name", name)
        self._calls.check_open()
        with rpc_errors():
            server = self._servers[0]
            response = await server.model.Reload(
                ReloadRequest(name=name), timeout=deadline(timeout_s), metadata=server.metadata
            )
        return models.reloaded(response)

    async def health(self, service: str = "", *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Health:
        """See `Client.health`."""
        check_name("service", service)
        self._calls.check_open()
        with rpc_errors():
            response = await self._servers[0].check_health(
                HealthCheckRequest(service=service), timeout=deadline(timeout_s)
            )
        return messages.health(response)

    async def _ask(self, method: "AsyncMethod[Q, R]", request: Q, timeout_s: float) -> R:
        """See `Client`."""
        self._calls.check_open()
        with rpc_errors():
            answer: R = await answered(self._calls, partial(_start_async, method, request), deadline(timeout_s))
        return answer

    async def _collect(
        self,
        method: "AsyncMethod[Q, R]",
        requests: Iterable[Q],
        unpack: Callable[[Q, R], list[T]],
        timeout_s: float,
    ) -> list[T]:
        """See `Client`."""
        return [result async for result in self._each(method, requests, unpack, timeout_s)]

    async def _each(
        self,
        method: "AsyncMethod[Q, R]",
        requests: Iterable[Q],
        unpack: Callable[[Q, R], list[T]],
        timeout_s: float,
    ) -> AsyncGenerator[T]:
        """See `Client`."""

        def start(request: Q) -> asyncio.Task[R]:
            begin = partial(_start_async, method, request)
            return asyncio.ensure_future(answered(self._calls, begin, deadline(timeout_s)))

        self._calls.check_open()
        given = 0
        with closing(messages.windowed(requests, start)) as calls:
            for request, call in calls:
                with rpc_errors(first=given):
                    results = unpack(request, await call)
                given += len(results)
                for result in results:
                    yield result

    async def _most(self, texts: int, model: str, timeout_s: float) -> int:
        """How many of so many texts a request may have. Asks the server before the first that may have several."""
        check_name("model", model)
        if texts > 1 and model not in self._most_contents:
            self._most_contents[model] = messages.most_contents(await self.model(model, timeout_s=timeout_s))
        return self._most_contents.get(model, 1)


def _start_async(
    method: "AsyncMethod[Q, R]", request: Q, server: AsyncMethods, timeout_s: float, waits: bool
) -> "aio.UnaryUnaryCall[Q, R]":
    return method(server)(request, timeout=timeout_s, wait_for_ready=waits, metadata=server.metadata)
