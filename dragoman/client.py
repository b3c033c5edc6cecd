"""The Python clients of a Dragoman server: `Client` for synchronous code, `AsyncClient` for asyncio.

    with Client("127.0.0.1:8500") as client:
        print(client.translate("How are you?", num_beams=4).text)

Every call has a deadline, 30 s unless `timeout_s` says otherwise, and fails with an error of `dragoman.errors`. Within
it a call waits for a server that is not there yet, and one that a server refuses as UNAVAILABLE is made again, after
the time that the server asks for.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest

from dragoman.calls.attempts import Calls
from dragoman.calls.pending import Pending, streamed
from dragoman.channel import DEFAULT_TARGET, TlsOptions, Token, open_channels
from dragoman.errors import rpc_errors
from dragoman.methods import Methods, reach
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
from dragoman.wire.labels import ClassifyOptions
from dragoman.wire.messages import Texts, TranslationOptions, deadline, named
from dragoman.wire.scoring import ScoreOptions

DEFAULT_TIMEOUT_S = 30.0
RELOAD_TIMEOUT_S = 3600.0
"""Of `reload`: a new version may answer live requests for a while before it serves."""

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")

if TYPE_CHECKING:  # gRPC's classes take no parameters at run time
    Method = Callable[[Methods], grpc.UnaryUnaryMultiCallable[Q, R]]


class Client:
    """A connection to a Dragoman server for synchronous code. May be shared between threads.

    `target` is HOST:PORT or any gRPC target, such as `ipv4:10.0.0.1:8500,10.0.0.2:8500`: calls go to all addresses in
    turn. Of a sequence of targets, a call goes to the one that seems to answer sooner: see `dragoman.calls.servers`.
    `tls` None is plaintext. `token`: who calls, for a server that asks; a function, such as `Path("token").read_text`,
    is called for each call. It connects at the first call. `wait_for_ready`: a call waits for a server that is not
    there, as long as its deadline allows; else it fails with `Unreachable`. `hedge_after_s`: a call other than a stream
    that has no answer by then is made a second time, on another server if there is one, and the first answer counts.
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
        servers = [Methods(channel, token) for channel in open_channels(target, tls)]
        self._call(servers, wait_for_ready, hedge_after_s)

    def _call(self, servers: list[Methods], wait_for_ready: bool = True, hedge_after_s: float | None = None) -> None:
        """From now on. See `Calls`."""
        self._servers = servers
        self._calls = Calls(servers, reach, wait_for_ready, hedge_after_s)
        self._most_contents: dict[str, int] = {}
        """How many texts a request may have, of every model that was asked about."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections. What is still under way on them raises Cancelled."""
        self._calls.close()
        for server in self._servers:
            server.channel.close()

    @overload
    def translate(
        self, texts: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> Translation: ...
    @overload
    def translate(
        self, texts: Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> list[Translation]: ...
    def translate(
        self, texts: str | Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> Translation | list[Translation]:
        """Translates one text, or a list of texts in order. See `TranslationOptions`.

        A long list goes as several requests, some of them at once; each may take `timeout_s`. A text that is refused
        fails the whole call.
        """
        given = messages.listed(texts)
        most = self._most(len(given), options.get("model", ""), timeout_s)
        requests = messages.translate_requests(given, options, most)
        results = self._collect(lambda server: server.translation.Translate, requests, messages.translations, timeout_s)
        return results[0] if isinstance(texts, str) else results

    def stream_translate(
        self, text: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslationOptions]
    ) -> Generator[TextDelta | Translation]:
        """Translates one text as it is decoded: `TextDelta`s, then the complete `Translation` as the last item.

        The call starts when the first item is asked for. Closing the iterator early cancels it.
        """
        request = messages.stream_request(text, options)

        def start(server: Methods, timeout_s: float, waits: bool) -> Any:
            return server.translation.StreamTranslate(
                request, timeout=timeout_s, wait_for_ready=waits, metadata=server.metadata
            )

        with closing(streamed(self._calls, start, deadline(timeout_s))) as events:
            for event in events:
                yield messages.stream_event(event)

    def translate_document(
        self,
        document: bytes,
        format: DocumentFormat,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **options: Unpack[DocumentOptions],
    ) -> Generator[DocumentProgress | TranslatedDocument]:
        """Translates the bytes of a file: `DocumentProgress`es, then the `TranslatedDocument` as the last item.

        A long document takes a longer `timeout_s`. Closing the iterator early cancels the call.
        """
        request = documents.document_request(document, format, options)

        def start(server: Methods, timeout_s: float, waits: bool) -> Any:
            return server.translation.TranslateDocument(
                request, timeout=timeout_s, wait_for_ready=waits, metadata=server.metadata
            )

        with closing(streamed(self._calls, start, deadline(timeout_s))) as events:
            for event in events:
                yield documents.document_event(event)

    @overload
    def encode(
        self, texts: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[EncodingOptions]
    ) -> Embedding: ...
    @overload
    def encode(
        self, texts: Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[EncodingOptions]
    ) -> list[Embedding]: ...
    def encode(
        self, texts: str | Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[EncodingOptions]
    ) -> Embedding | list[Embedding]:
        """The vector of one text, or of each of a list. See `EncodingOptions`."""
        given = messages.listed(texts)
        requests = encoding.encode_requests(given, options, self._most(len(given), options.get("model", ""), timeout_s))
        results = self._collect(lambda server: server.encoding.Encode, requests, encoding.embeddings, timeout_s)
        return results[0] if isinstance(texts, str) else results

    def stream_encode(
        self, texts: Iterable[str], *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[EncodingOptions]
    ) -> Generator[Embedding]:
        """The vectors of any number of texts, in order and as they come. See `EncodingOptions`.

        `texts` is asked for more only as vectors are taken: few of them are in memory. They go as many requests, some
        at once; each may take `timeout_s` and is made again by itself. A text that is refused ends it, after the
        vectors of all requests before its own. Closing the iterator early cancels what is under way.
        """
        most = self._most(2, options.get("model", ""), timeout_s)
        requests = encoding.encode_requests(messages.checked(texts), options, most)
        yield from self._each(lambda server: server.encoding.Encode, requests, encoding.embeddings, timeout_s)

    @overload
    def classify(
        self, texts: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[ClassifyOptions]
    ) -> Classification: ...
    @overload
    def classify(
        self, texts: Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[ClassifyOptions]
    ) -> list[Classification]: ...
    def classify(
        self, texts: str | Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[ClassifyOptions]
    ) -> Classification | list[Classification]:
        """The labels of one text, or of each of a list, or of their tokens. See `ClassifyOptions`."""
        given = messages.listed(texts)
        most = self._most(len(given), options.get("model", ""), timeout_s)
        requests = labels.classify_requests(given, options, most)
        results = self._collect(lambda server: server.encoding.Classify, requests, labels.classifications, timeout_s)
        return results[0] if isinstance(texts, str) else results

    @overload
    def translate_and_encode(
        self, texts: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslateAndEncodeOptions]
    ) -> tuple[Translation, Embedding]: ...
    @overload
    def translate_and_encode(
        self, texts: Texts, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Unpack[TranslateAndEncodeOptions]
    ) -> list[tuple[Translation, Embedding]]: ...
    def translate_and_encode(
        self,
        texts: str | Texts,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **options: Unpack[TranslateAndEncodeOptions],
    ) -> tuple[Translation, Embedding] | list[tuple[Translation, Embedding]]:
        """The translation and the vector of one text, or of each of a list, from one run of the encoder.

        See `TranslateAndEncodeOptions`.
        """
        given = messages.listed(texts)
        most = self._most(len(given), options.get("model", ""), timeout_s)
        requests = encoding.translate_and_encode_requests(given, options, most)
        both = encoding.translations_and_embeddings
        results = self._collect(lambda server: server.translation.TranslateAndEncode, requests, both, timeout_s)
        return results[0] if isinstance(texts, str) else results

    @overload
    def score(
        self,
        texts: str,
        targets: Sequence[str],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **options: Unpack[ScoreOptions],
    ) -> Scores: ...
    @overload
    def score(
        self,
        texts: Texts,
        targets: Sequence[Sequence[str]],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **options: Unpack[ScoreOptions],
    ) -> list[Scores]: ...
    def score(
        self,
        texts: str | Texts,
        targets: Sequence[str] | Sequence[Sequence[str]],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **options: Unpack[ScoreOptions],
    ) -> Scores | list[Scores]:
        """How probable given translations of one text are; or, of each of a list of texts, a list of its own.

        See `ScoreOptions`. Nothing is decoded: it costs about as much as encoding.
        """
        pairs = scoring.paired(texts, targets)
        most = self._most(len(pairs), options.get("model", ""), timeout_s)
        requests = scoring.score_requests(pairs, options, most)
        results = self._collect(lambda server: server.translation.Score, requests, scoring.scores, timeout_s)
        return results[0] if isinstance(texts, str) else results

    def models(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[Model]:
        """Every model of the server, the default one first."""
        response = self._ask(lambda server: server.model.ListModels, ListModelsRequest(), timeout_s)
        return [models.model(message) for message in response.models]

    def model(self, name: str = "", *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Model:
        """One model; the default one if `name` is empty. Raises NotFound."""
        response = self._ask(lambda server: server.model.GetModel, GetModelRequest(name=named("name", name)), timeout_s)
        return models.model(response.model)

    def reload(self, name: str = "", *, timeout_s: float = RELOAD_TIMEOUT_S) -> Reloaded:
        """Has the server take up what is in a model's package folder now; the default one's if `name` is empty.

        Raises NotFound, FailedPrecondition where the new version is refused, Aborted while one is being taken up, and
        PermissionDenied. Of several servers, the first is asked. Without an answer in time, the server goes on.
        """
        self._calls.check_open()
        with rpc_errors():
            server = self._servers[0]
            response = server.model.Reload(
                ReloadRequest(name=named("name", name)), timeout=deadline(timeout_s), metadata=server.metadata
            )
        return models.reloaded(response)

    def health(self, service: str = "", *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Health:
        """State of one gRPC service; of the whole server if `service` is empty. Raises NotFound.

        Of several servers, the first is asked.
        """
        self._calls.check_open()
        with rpc_errors():
            response = self._servers[0].check_health(
                HealthCheckRequest(service=named("service", service)), timeout=deadline(timeout_s)
            )
        return messages.health(response)

    def _ask(self, method: "Method[Q, R]", request: Q, timeout_s: float) -> R:
        """One call, made again as long as that may help."""
        self._calls.check_open()
        with rpc_errors():
            return Pending[Methods, R](self._calls, partial(_start, method, request), deadline(timeout_s)).result()

    def _collect(
        self,
        method: "Method[Q, R]",
        requests: Iterable[Q],
        unpack: Callable[[Q, R], list[T]],
        timeout_s: float,
    ) -> list[T]:
        """Sends the requests, some at once, and joins what they answer, in order."""
        return list(self._each(method, requests, unpack, timeout_s))

    def _each(
        self,
        method: "Method[Q, R]",
        requests: Iterable[Q],
        unpack: Callable[[Q, R], list[T]],
        timeout_s: float,
    ) -> Generator[T]:
        """The same, one after the other. A request is made when there are few before it."""

        def start(request: Q) -> Pending[Methods, R]:
            with rpc_errors():
                return Pending(self._calls, partial(_start, method, request), deadline(timeout_s))

        self._calls.check_open()
        given = 0
        with closing(messages.windowed(requests, start)) as calls:
            for request, call in calls:
                with rpc_errors(first=given):
                    results = unpack(request, call.result())
                given += len(results)
                yield from results

    def _most(self, texts: int, model: str, timeout_s: float) -> int:
        """How many of so many texts a request may have. Asks the server before the first that may have several."""
        if texts > 1 and model not in self._most_contents:
            self._most_contents[model] = messages.most_contents(self.model(model, timeout_s=timeout_s))
        return self._most_contents.get(model, 1)


def _start(method: "Method[Q, R]", request: Q, server: Methods, timeout_s: float, waits: bool) -> "grpc.Future[R]":
    return method(server).future(request, timeout=timeout_s, wait_for_ready=waits, metadata=server.metadata)
