"""The Python clients of a Dragoman server: `Client` for synchronous code, `AsyncClient` for asyncio.

    with Client("127.0.0.1:8500") as client:
        print(client.translate("How are you?", num_beams=4).text)

Every call has a deadline, 30 s unless `timeout_s` says otherwise, and fails with an error of `dragoman.errors`. Within
it a call waits for a server that is not there yet, and one that a server refuses as UNAVAILABLE is made again, after
the time that the server asks for.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import aclosing, closing
from functools import partial
from typing import Self, TypeVar, Unpack, overload

import grpc
from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from dragoman import wire
from dragoman.attempts import Calls, Pending, answered, streamed, streamed_async
from dragoman.channel import DEFAULT_TARGET, TlsOptions, open_aio_channel, open_channel
from dragoman.errors import rpc_errors
from dragoman.results import Embedding, Health, Model, TextDelta, Translation
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from dragoman.v1.model_pb2 import GetModelRequest, ListModelsRequest
from dragoman.v1.model_pb2_grpc import ModelServiceStub
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from dragoman.wire import TranslationOptions, deadline

DEFAULT_TIMEOUT_S = 30.0

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")


class Client:
    """A connection to a Dragoman server for synchronous code. May be shared between threads.

    `target` is HOST:PORT or any gRPC target, such as `ipv4:10.0.0.1:8500,10.0.0.2:8500`: calls go to all addresses in
    turn. `tls` None is plaintext. It connects at the first call. `wait_for_ready`: a call waits for a server that is
    not there, as long as its deadline allows; else it fails with `Unreachable`.
    """

    def __init__(
        self, target: str = DEFAULT_TARGET, *, tls: TlsOptions | None = None, wait_for_ready: bool = True
    ) -> None:
        self._channel = open_channel(target, tls)
        self._translation = TranslationServiceStub(self._channel)
        self._encoding = EncodingServiceStub(self._channel)
        self._model = ModelServiceStub(self._channel)
        self._check_health = HealthStub(self._channel).Check  # type: ignore[attr-defined]  # its types lack methods
        self._calls = Calls(wait_for_ready, partial(self._check_health, HealthCheckRequest()))
        self._most_contents: dict[str, int] = {}
        """How many texts a request may have, of every model that was asked about."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and what is still under way on it."""
        self._channel.close()

    @overload
    def translate(
        self, texts: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> Translation: ...
    @overload
    def translate(
        self, texts: list[str], *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> list[Translation]: ...
    def translate(
        self, texts: str | list[str], *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> Translation | list[Translation]:
        """Translates one text, or a list of texts in order. See `TranslationOptions`.

        A long list goes as several requests, some of them at once; each may take `timeout_s`. A text that is refused
        fails the whole call.
        """
        given = wire.listed(texts)
        most = self._most(given, options.get("model", ""), timeout_s)
        requests = wire.translate_requests(given, options, most)
        results = self._collect(self._translation.Translate, requests, wire.translations, timeout_s)
        return results[0] if isinstance(texts, str) else results

    def stream_translate(
        self, text: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> Generator[TextDelta | Translation]:
        """Translates one text as it is decoded: `TextDelta`s, then the complete `Translation` as the last item.

        The call starts when the first item is asked for. Closing the iterator early cancels it.
        """
        start = partial(self._translation.StreamTranslate, wire.stream_request(text, options))
        with closing(streamed(self._calls, start, deadline(timeout_s))) as messages:
            for message in messages:
                yield wire.stream_event(message)

    @overload
    def encode(
        self, texts: str, *, normalize: bool = False, model: str = "", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Embedding: ...
    @overload
    def encode(
        self, texts: list[str], *, normalize: bool = False, model: str = "", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[Embedding]: ...
    def encode(
        self,
        texts: str | list[str],
        *,
        normalize: bool = False,
        model: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Embedding | list[Embedding]:
        """The vector of one text, or of each of a list; with `normalize`, divided by its L2 norm."""
        given = wire.listed(texts)
        requests = wire.encode_requests(given, model, normalize, self._most(given, model, timeout_s))
        results = self._collect(self._encoding.Encode, requests, wire.embeddings, timeout_s)
        return results[0] if isinstance(texts, str) else results

    def models(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[Model]:
        """Every model of the server, the default one first."""
        response = self._ask(self._model.ListModels, ListModelsRequest(), timeout_s)
        return [wire.model(message) for message in response.models]

    def model(self, name: str = "", *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Model:
        """One model; the default one if `name` is empty. Raises NotFound."""
        response = self._ask(self._model.GetModel, GetModelRequest(name=name), timeout_s)
        return wire.model(response.model)

    def health(self, service: str = "", *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Health:
        """State of one gRPC service; of the whole server if `service` is empty. Raises NotFound."""
        with rpc_errors():
            response = self._check_health(HealthCheckRequest(service=service), timeout=deadline(timeout_s))
        return wire.health(response)

    def _ask(self, method: "grpc.UnaryUnaryMultiCallable[Q, R]", request: Q, timeout_s: float) -> R:
        """One call, made again as long as that may help."""
        with rpc_errors():
            return Pending(self._calls, partial(method.future, request), deadline(timeout_s)).result()

    def _collect(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Q, R]",
        requests: Iterable[Q],
        unpack: Callable[[Q, R], list[T]],
        timeout_s: float,
    ) -> list[T]:
        """Sends the requests, some at once, and joins what they answer, in order."""

        def start(request: Q) -> Pending[R]:
            return Pending(self._calls, partial(method.future, request), deadline(timeout_s))

        results: list[T] = []
        with closing(wire.windowed(requests, start)) as calls:
            for request, call in calls:
                with rpc_errors(first=len(results)):
                    results += unpack(request, call.result())
        return results

    def _most(self, texts: list[str], model: str, timeout_s: float) -> int:
        """How many texts a request may have. Asks the server before the first that may have several."""
        if len(texts) > 1 and model not in self._most_contents:
            self._most_contents[model] = wire.most_contents(self.model(model, timeout_s=timeout_s))
        return self._most_contents.get(model, 1)


class AsyncClient:
    """A connection to a Dragoman server for asyncio. Make it inside the event loop that uses it.

    Its methods are those of `Client`; cancelling one cancels it on the server.
    """

    def __init__(
        self, target: str = DEFAULT_TARGET, *, tls: TlsOptions | None = None, wait_for_ready: bool = True
    ) -> None:
        self._channel = open_aio_channel(target, tls)
        self._translation = TranslationServiceStub(self._channel)
        self._encoding = EncodingServiceStub(self._channel)
        self._model = ModelServiceStub(self._channel)
        self._check_health = HealthStub(self._channel).Check  # type: ignore[attr-defined]  # its types lack methods
        self._calls = Calls(wait_for_ready, partial(self._check_health, HealthCheckRequest()))
        self._most_contents: dict[str, int] = {}
        """How many texts a request may have, of every model that was asked about."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection, and what is still under way on it."""
        await self._channel.close()

    @overload
    async def translate(
        self, texts: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> Translation: ...
    @overload
    async def translate(
        self, texts: list[str], *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> list[Translation]: ...
    async def translate(
        self, texts: str | list[str], *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> Translation | list[Translation]:
        """See `Client.translate`."""
        given = wire.listed(texts)
        most = await self._most(given, options.get("model", ""), timeout_s)
        requests = wire.translate_requests(given, options, most)
        results = await self._collect(self._translation.Translate, requests, wire.translations, timeout_s)
        return results[0] if isinstance(texts, str) else results

    async def stream_translate(
        self, text: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> AsyncGenerator[TextDelta | Translation]:
        """See `Client.stream_translate`. Leave it early only through `contextlib.aclosing`."""
        start = partial(self._translation.StreamTranslate, wire.stream_request(text, options))
        async with aclosing(streamed_async(self._calls, start, deadline(timeout_s))) as messages:
            async for message in messages:
                yield wire.stream_event(message)

    @overload
    async def encode(
        self, texts: str, *, normalize: bool = False, model: str = "", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Embedding: ...
    @overload
    async def encode(
        self, texts: list[str], *, normalize: bool = False, model: str = "", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[Embedding]: ...
    async def encode(
        self,
        texts: str | list[str],
        *,
        normalize: bool = False,
        model: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Embedding | list[Embedding]:
        """See `Client.encode`."""
        given = wire.listed(texts)
        requests = wire.encode_requests(given, model, normalize, await self._most(given, model, timeout_s))
        results = await self._collect(self._encoding.Encode, requests, wire.embeddings, timeout_s)
        return results[0] if isinstance(texts, str) else results

    async def models(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[Model]:
        """See `Client.models`."""
        response = await self._ask(self._model.ListModels, ListModelsRequest(), timeout_s)
        return [wire.model(message) for message in response.models]

    async def model(self, name: str = "", *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Model:
        """See `Client.model`."""
        response = await self._ask(self._model.GetModel, GetModelRequest(name=name), timeout_s)
        return wire.model(response.model)

    async def health(self, service: str = "", *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Health:
        """See `Client.health`."""
        with rpc_errors():
            response = await self._check_health(HealthCheckRequest(service=service), timeout=deadline(timeout_s))
        return wire.health(response)

    async def _ask(self, method: "aio.UnaryUnaryMultiCallable[Q, R]", request: Q, timeout_s: float) -> R:
        """See `Client`."""
        with rpc_errors():
            return await answered(self._calls, partial(method, request), deadline(timeout_s))

    async def _collect(
        self,
        method: "aio.UnaryUnaryMultiCallable[Q, R]",
        requests: Iterable[Q],
        unpack: Callable[[Q, R], list[T]],
        timeout_s: float,
    ) -> list[T]:
        """See `Client`."""

        def start(request: Q) -> asyncio.Task[R]:
            return asyncio.ensure_future(answered(self._calls, partial(method, request), deadline(timeout_s)))

        results: list[T] = []
        with closing(wire.windowed(requests, start)) as calls:
            for request, call in calls:
                with rpc_errors(first=len(results)):
                    results += unpack(request, await call)
        return results

    async def _most(self, texts: list[str], model: str, timeout_s: float) -> int:
        """How many texts a request may have. Asks the server before the first that may have several."""
        if len(texts) > 1 and model not in self._most_contents:
            self._most_contents[model] = wire.most_contents(await self.model(model, timeout_s=timeout_s))
        return self._most_contents.get(model, 1)
